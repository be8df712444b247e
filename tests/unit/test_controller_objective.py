"""What the loop does with the choices of algo.*: dynamic sampling, masks, penalties, epochs, references."""

from dataclasses import replace

import pytest

from gspo_ray.config import AlgoConfig
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.types import Finish, Outcome
from tests.unit.controller_fakes import Run, first_is_right


class ByProblem:
    """Pays completion 0 of a problem in `mixed`, everything of one in `easy`, nothing of the rest."""

    def __init__(self, *, mixed=(), easy=(), lost=()):
        self._mixed, self._easy, self._lost = mixed, easy, lost
        self.calls = 0

    async def score(self, groups_P):
        self.calls += 1
        return [self._score(group) for group in groups_P]

    def _score(self, group):
        from tests.unit.factories import make_verdict

        name = group.prompt.problem.problem_id
        verdicts = [
            make_verdict(0.0, outcome=Outcome.ERROR)
            if (name, i) in self._lost
            else make_verdict(float(name in self._easy or (name in self._mixed and i == 0)))
            for i in range(len(group.completions))
        ]
        return replace(group, verdicts=tuple(verdicts))


def run_with(verifier, algo, **settings):
    run = Run(algo=algo, **settings)
    run.controller._verifier = verifier
    return run.go()


def ids(groups):
    return [group.prompt.problem.problem_id for group in groups]


def dynamic(max_tries):
    return AlgoConfig(dynamic_sampling={"max_tries": max_tries})


def test_flat_groups_are_replaced_from_new_problems_and_the_cursor_counts_them():
    everything = [f"p{i}" for i in range(7)]
    order = ids(Run(total_steps=1, problems_per_step=7).go().tracker.records[0].groups_P)
    assert sorted(order) == everything
    # Of the first three only the second teaches; of the two that follow only the first; then one more.
    verifier = ByProblem(mixed={order[1], order[3], order[5]}, easy={order[0]})
    run = run_with(verifier, dynamic(5), total_steps=1)
    (record,) = run.tracker.records
    assert sorted(ids(record.groups_P)) == sorted([order[1], order[3], order[5]])
    assert ids(record.discarded) == [order[0], order[2], order[4]]
    assert record.refills == 2
    assert verifier.calls == 3
    assert run.final.problems_seen == 6
    values = run.tracker.steps[0].values
    assert (values["groups/discarded"], values["groups/effective_frac"]) == (3.0, 0.5)
    assert values["data/problems_seen"] == 6.0


def test_no_completion_of_a_step_is_drawn_with_the_seed_of_another():
    record = run_with(ByProblem(), dynamic(2), total_steps=1).tracker.records[0]
    seeds = [group.completions[0].seed for group in record.sampled]
    assert len(set(seeds)) == len(seeds) == 9  # 3 and two refills of 3


def test_problems_that_can_never_be_right_end_the_step_and_not_the_run():
    verifier = ByProblem()
    run = run_with(verifier, dynamic(2), total_steps=2)
    assert verifier.calls == 6  # 1 + 2 tries in each step
    assert [len(record.groups_P) for record in run.tracker.records] == [3, 3]
    assert [len(record.discarded) for record in run.tracker.records] == [6, 6]
    assert run.final.step == 2
    assert run.final.problems_seen == 18
    notes = " ".join(run.tracker.steps[0].notes)
    assert "No group has a learning signal" in notes
    assert "3 groups are still without one" in notes


def test_without_dynamic_sampling_flat_groups_stay_in_the_divisor():
    verifier = ByProblem(mixed={"p0", "p1", "p2"})
    run = run_with(verifier, AlgoConfig(), total_steps=1, problems_per_step=7)
    ((_, batch),) = run.learner.batches
    assert batch.num_sequences == 14
    assert len(batch.active_rows()) == 6
    assert verifier.calls == 1


def test_a_completion_that_was_never_judged_is_not_a_wrong_answer():
    # The verifier failed on both completions of p0, and on one of p1, which leaves a single reward there.
    names = {"p0", "p1", "p2", "p3", "p4", "p5", "p6"}
    verifier = ByProblem(mixed=names, lost={("p0", 0), ("p0", 1), ("p1", 1)})
    run = run_with(verifier, AlgoConfig(), total_steps=1, problems_per_step=7)
    (record,) = run.tracker.records
    by_name = dict(zip(ids(record.groups_P), record.advantages_PG, strict=True))
    assert by_name["p0"] == [0.0, 0.0]
    assert by_name["p1"] == [0.0, 0.0]
    assert by_name["p2"] == pytest.approx([0.707107, -0.707107], abs=1e-5)
    ((_, batch),) = run.learner.batches
    assert batch.num_sequences == 11  # 14 - 3
    assert run.tracker.steps[0].values["outcome/error_frac"] == pytest.approx(3 / 14)


class CutsTheSecond(FakeEngine):
    """Completion 1 of every group is cut off by the limit."""

    async def generate(self, prompt_ids, *, n, sampling, seed):
        completions = await super().generate(prompt_ids, n=n, sampling=sampling, seed=seed)
        return [replace(c, finish=Finish.LENGTH if i == 1 else Finish.STOP) for i, c in enumerate(completions)]


def test_masked_truncated_completions_leave_loss_and_divisor_but_not_the_comparison():
    run = Run(total_steps=1, algo=AlgoConfig(overlong={"mode": "mask"}), engines=[CutsTheSecond("e")]).go()
    ((_, batch),) = run.learner.batches
    assert batch.counted_B.tolist() == [True, False] * 3
    assert batch.num_sequences == 3
    assert batch.num_tokens == int(batch.completion_lens_B[::2].sum())
    assert batch.active_rows().tolist() == [0, 2, 4]
    # The truncated one still counts as a wrong answer of its group, and in what is measured.
    assert batch.advantages_B.tolist() == pytest.approx([0.707107, -0.707107] * 3, abs=1e-5)
    values = run.tracker.steps[0].values
    assert (values["completion/masked_frac"], values["completion/truncated_frac"]) == (0.5, 0.5)
    assert values["completion/len_max"] == float(batch.completion_lens_B.max())


class Lengths(FakeEngine):
    """Completions of 4 and 8 tokens; the limit is 8."""

    async def generate(self, prompt_ids, *, n, sampling, seed):
        completions = await super().generate(prompt_ids, n=n, sampling=sampling, seed=seed)
        return [
            replace(c, token_ids=(5,) * length, sampler_logprobs=(-0.5,) * length)
            for c, length in zip(completions, (4, 8), strict=True)
        ]


def test_the_soft_penalty_reaches_the_advantages_and_not_the_reported_reward():
    algo = AlgoConfig(overlong={"mode": "soft_penalty", "buffer_tokens": 2}, advantage="mean_only")
    run = Run(total_steps=1, algo=algo, engines=[Lengths("e")], script=lambda step, sample: 1.0).go()
    ((_, batch),) = run.learner.batches
    # Both right; 8 tokens of 8 cost 1: rewards 1 and 0, minus their mean
    assert batch.advantages_B.tolist() == [0.5, -0.5] * 3
    values = run.tracker.steps[0].values
    assert (values["reward/mean"], values["reward/shaped_mean"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("algo", "calls"),
    [
        (AlgoConfig(), 0),
        (AlgoConfig(kl={"coef": 0.1}), 1),
        (AlgoConfig(old_logprobs="reference"), 1),
        (AlgoConfig(kl={"coef": 0.1}, num_minibatches=3, num_epochs=2), 3),
    ],
)
def test_the_reference_is_scored_once_a_minibatch_and_only_when_needed(algo, calls):
    run = Run(total_steps=1, algo=algo).go()
    assert run.learner.referred == calls


def test_epochs_repeat_the_same_minibatches_and_only_the_first_update_is_at_the_sampling_weights():
    run = Run(total_steps=1, algo=AlgoConfig(num_minibatches=3, num_epochs=2)).go()
    batches = [batch for _, batch in run.learner.batches]
    assert [batch.row_B.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]] * 2
    assert [batch.is_first_update for batch in batches] == [True] + [False] * 5


def test_shuffled_rows_are_another_order_every_step_and_the_same_in_every_run():
    def rows():
        algo = AlgoConfig(num_minibatches=2, minibatch_rows="shuffled")
        run = Run(total_steps=2, algo=algo, problems_per_step=5).go()
        return [batch.row_B.tolist() for _, batch in run.learner.batches]

    first, second, third, fourth = rows()
    assert sorted(first + second) == sorted(third + fourth) == list(range(10))  # none is lost, none comes twice
    assert first != third
    assert [len(first), len(second)] == [5, 5]
    assert rows() == [first, second, third, fourth]


@pytest.mark.parametrize("kind", ["population", "mean_only", "leave_one_out", "batch"])
def test_the_chosen_advantage_reaches_the_learner(kind):
    # Groups of two with rewards 1, 0: mean 0.5; population std 0.5; the other is 0 or 1; batch std sqrt(0.3)
    wanted = {"population": 1.0, "mean_only": 0.5, "leave_one_out": 1.0, "batch": 0.5 / 0.3**0.5}[kind]
    ((_, batch),) = Run(total_steps=1, algo=AlgoConfig(advantage=kind), script=first_is_right).go().learner.batches
    assert batch.advantages_B.tolist() == pytest.approx([wanted, -wanted] * 3, abs=1e-6)
