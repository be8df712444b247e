"""Small made-up problems, groups and batches. Numbers are plain so that expected values can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.batch import TrainBatch, collate
from gspo_ray.types import Completion, Finish, Group, Outcome, Problem, Prompt, Verdict, WeightVersion

BASE = WeightVersion(step=0, sha256="00" * 32)


def make_problem(problem_id: str = "p0", *, answer: str = "7") -> Problem:
    return Problem(problem_id=problem_id, question=f"question of {problem_id}", answer=answer, source="made up")


def make_prompt(problem_id: str = "p0", token_ids: Sequence[int] = (1, 2, 3)) -> Prompt:
    return Prompt(problem=make_problem(problem_id), token_ids=tuple(token_ids))


def make_completion(
    token_ids: Sequence[int] = (10, 11, 12),
    *,
    logprobs: Sequence[float] | None = None,
    finish: Finish = Finish.STOP,
    version: WeightVersion = BASE,
    seed: int = 0,
    text: str = "\\boxed{7}",
) -> Completion:
    return Completion(
        token_ids=tuple(token_ids),
        sampler_logprobs=(-0.5,) * len(token_ids) if logprobs is None else tuple(logprobs),
        text=text,
        finish=finish,
        version=version,
        engine_id="engine-0",
        seed=seed,
    )


def make_verdict(reward: float = 1.0, *, outcome: Outcome | None = None, seconds: float = 0.01) -> Verdict:
    outcome = outcome or (Outcome.CORRECT if reward else Outcome.WRONG)
    return Verdict(reward=reward, outcome=outcome, extracted="7" if reward else "8", seconds=seconds)


def make_group(
    rewards: Sequence[float] = (1.0, 0.0),
    completions: Sequence[Sequence[int]] | None = None,
    *,
    problem_id: str = "p0",
    prompt_ids: Sequence[int] = (1, 2, 3),
) -> Group:
    """One completion a reward; `completions` are their token ids."""
    tokens = completions or [(10, 11, 12)] * len(rewards)
    return Group(
        prompt=make_prompt(problem_id, prompt_ids),
        completions=tuple(make_completion(ids, seed=i) for i, ids in enumerate(tokens)),
        verdicts=tuple(make_verdict(reward) for reward in rewards),
    )


def make_batch(groups: Sequence[Group], *, newest_step: int = 0) -> TrainBatch:
    return collate(groups, group_advantages([group.rewards_G for group in groups]), newest_step=newest_step)
