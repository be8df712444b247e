"""The loop with parts that are made of plain arithmetic: what it pushes, saves, skips, and how it goes on."""

import pytest

from gspo_ray.config import AlgoConfig
from gspo_ray.errors import EngineError
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.tracking.metrics import METRICS
from gspo_ray.types import RunState
from tests.unit.controller_fakes import SEED, Run, first_is_right


def test_every_step_ends_with_the_new_adapter_in_every_engine():
    run = Run(total_steps=3).go()
    for engine in run.engines:
        assert [version.step for version in engine.loaded] == [0, 1, 2, 3]
        assert len({version.sha256 for version in engine.loaded}) == 4
    assert run.final.version == run.engines[0].loaded[-1]
    assert [metrics.values["sync/version"] for metrics in run.tracker.steps] == [1.0, 2.0, 3.0]


def test_what_a_step_samples_comes_from_the_weights_of_the_step_before():
    run = Run(total_steps=3).go()
    # B61: staleness is exactly 0 in every record
    assert {step: {v.step for *_, v in items} for step, items in run.drawn().items()} == {1: {0}, 2: {1}, 3: {2}}
    assert all(not bool(batch.policy_age_B.any()) for _, batch in run.learner.batches)


def test_groups_rewards_and_steps_reach_the_learner_as_they_are():
    run = Run(total_steps=2).go()
    (step, batch), _ = run.learner.batches
    assert step == 1
    # rewards 1, 0 in each of 3 groups of 2: +-0.70711 (ddof 1)
    assert batch.advantages_B.tolist() == pytest.approx([0.707107, -0.707107] * 3, abs=1e-5)
    assert batch.num_sequences == 6
    assert batch.group_B.tolist() == [0, 0, 1, 1, 2, 2]


def test_every_number_is_logged_under_a_known_name_with_the_cursor():
    run = Run(total_steps=2).go()
    assert [metrics.step for metrics in run.tracker.steps] == [1, 2]
    for number, metrics in enumerate(run.tracker.steps, start=1):
        assert metrics.values.keys() <= METRICS.keys()
        assert metrics.values["data/problems_seen"] == 3.0 * number
        assert metrics.values["memory/driver_mib"] == 1.0
        times = [metrics.values[f"time/{part}_s"] for part in ("rollout", "reward", "train", "sync")]
        assert min(times) >= 0
        assert sum(times) <= metrics.values["time/step_s"]
    assert [step for step, _ in run.tracker.rollouts] == [1, 2]
    assert all(group.verdicts for _, groups in run.tracker.rollouts for group in groups)


@pytest.mark.parametrize(("reward", "words"), [(0.0, "too hard"), (1.0, "nothing left to learn")])
def test_a_step_without_signal_pushes_nothing_says_so_and_goes_on(reward, words):
    def script(step, sample):
        return reward if step == 2 else first_is_right(step, sample)

    run = Run(total_steps=3, script=script).go()
    assert [version.step for version in run.engines[0].loaded] == [0, 1, 3]
    before, quiet, after = run.tracker.steps
    assert not before.notes
    assert not after.notes
    (note,) = quiet.notes
    assert "No group has a learning signal" in note
    assert words in note
    assert "no new adapter is pushed" in note
    assert quiet.values["sync/version"] == 1.0  # still that of step 1
    assert quiet.values["learner/updates"] == 0.0
    # Step 3 samples from the weights of step 1, which are the newest: not stale.
    assert {v.step for *_, v in run.drawn()[3]} == {1}
    assert all(not bool(batch.policy_age_B.any()) for _, batch in run.learner.batches)
    assert run.final.step == 3
    assert run.final.problems_seen == 9


def test_a_refused_update_pushes_nothing_and_is_said():
    run = Run(total_steps=2)
    run.learner.refuse = True
    run.go()
    assert [version.step for version in run.engines[0].loaded] == [0]
    assert all("Update refused" in metrics.notes[0] for metrics in run.tracker.steps)


@pytest.mark.parametrize(
    ("every", "total", "steps"), [(2, 5, [2, 4, 5]), (2, 4, [2, 4]), (0, 3, [3]), (1, 2, [1, 2]), (10, 3, [3])]
)
def test_checkpoints_are_saved_when_due_and_at_the_end(every, total, steps):
    run = Run(total_steps=total, checkpoint_every=every).go()
    assert [state.step for state, _ in run.saved] == steps
    for state, learner_state in run.saved:
        assert state.version == learner_state.adapter.version
        assert state.problems_seen == 3 * state.step
        assert state.seed == SEED
        assert RunState.from_json(state.to_json()) == state


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(stop):
    def script(step, sample):
        return 0.0 if step == 3 else first_is_right(step, sample)  # a step without a push on the way

    whole = Run(total_steps=6, checkpoint_every=1, script=script).go()
    state, learner_state = whole.saved[stop - 1]
    resumed = Run(total_steps=6, state=state, learner_state=learner_state, script=script).go()
    assert resumed.drawn() == {step: items for step, items in whole.drawn().items() if step > stop}
    assert resumed.final == whole.final
    assert resumed.learner.weights == whole.learner.weights


def test_the_first_version_after_a_resume_is_the_next_step_and_not_one():
    # B59
    run = Run(total_steps=20, checkpoint_every=20).go()
    state, learner_state = run.saved[-1]
    resumed = Run(total_steps=22, state=state, learner_state=learner_state).go()
    assert [version.step for version in resumed.engines[0].loaded] == [20, 21, 22]
    assert [metrics.step for metrics in resumed.tracker.steps] == [21, 22]


def test_a_run_that_is_already_at_its_end_trains_nothing():
    run = Run(total_steps=2, checkpoint_every=1).go()
    state, learner_state = run.saved[-1]
    again = Run(total_steps=2, state=state, learner_state=learner_state).go()
    assert again.final == state
    assert again.tracker.steps == []
    assert again.saved == []
    assert again.learner.batches == []


def test_an_engine_that_disagrees_stops_the_run_before_anything_is_sampled():
    run = Run()
    run.learner.score_value = -0.75  # the fake engines say -0.5
    with pytest.raises(EngineError, match=r"-0\.50000, the learner's -0\.75000.*2\.50e-01"):
        run.go()
    assert run.tracker.rollouts == []
    assert run.saved == []


def test_an_engine_that_fails_to_take_a_push_stops_the_run_at_that_step():
    class Stuck(FakeEngine):
        """B58: takes the first adapter and echoes it for ever."""

        async def load_adapter(self, adapter):
            echo = await super().load_adapter(adapter)
            return self.loaded[0] if len(self.loaded) > 2 else echo

    run = Run(engines=[FakeEngine("good"), Stuck("stuck")], checkpoint_every=1)
    with pytest.raises(EngineError, match="engine 1 echoes"):
        run.go()
    # Step 1 arrived, step 2 did not: its checkpoint is the last.
    assert [state.step for state, _ in run.saved] == [1]


@pytest.mark.parametrize(
    ("algo", "filled", "updates"),
    [
        (AlgoConfig(), 0, 1),
        (AlgoConfig(num_minibatches=3), 6, 3),
        (AlgoConfig(num_epochs=3), 2, 3),
        (AlgoConfig(num_minibatches=2, num_epochs=2), 4, 4),
        (AlgoConfig(num_minibatches=3, old_logprobs="sampler"), 0, 3),
    ],
)
def test_old_logprobs_are_computed_only_for_several_updates(algo, filled, updates):
    run = Run(total_steps=2, algo=algo).go()
    assert run.learner.filled == filled  # each mini-batch once a step, before its first update
    assert [step for step, _ in run.learner.batches] == [1] * updates + [2] * updates
    assert [batch.is_first_update for _, batch in run.learner.batches] == ([True] + [False] * (updates - 1)) * 2
    # One push a step, whatever the number of updates
    assert [version.step for version in run.engines[0].loaded] == [0, 1, 2]
