"""Small made-up problems, groups and batches. Numbers are plain so that expected values can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.batch import TrainBatch, collate
from gspo_ray.algo.record import StepRecord
from gspo_ray.algo.rewards import counted, judged_rewards
from gspo_ray.algo.stats import MismatchStats, SequenceStats, UpdateStats
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
    """Every completion judged and counted."""
    advantages_PG = group_advantages([group.rewards_G for group in groups])
    counted_PG = [[True] * len(group.completions) for group in groups]
    return collate(groups, advantages_PG, counted_PG, newest_step=newest_step)


def make_mismatch(gap: float = 0.0, *, tokens: int = 10, diff: float = 0.0) -> MismatchStats:
    """`diff` is the |gap| of every token but one, which has twice as much."""
    return MismatchStats(log_ratio=gap, abs_diff_sum=diff * tokens, abs_diff_max=2 * diff, k3_sum=0.5 * tokens * gap**2)


def make_sequence(
    row: int = 0,
    *,
    advantage: float = 1.0,
    ratio: float = 1.0,
    clipped: bool = False,
    outside: bool = False,
    gap: float | None = 0.0,
    tokens: int = 10,
    diff: float = 0.0,
) -> SequenceStats:
    """A sequence whose tokens all have the ratio `ratio`; `gap`: its mismatch, None for unknown."""
    return SequenceStats(
        row=row,
        advantage=advantage,
        num_tokens=tokens,
        log_ratio=math.log(ratio),
        clipped_tokens=tokens if clipped else 0,
        outside_tokens=tokens if clipped or outside else 0,
        token_log_ratio_min=math.log(ratio),
        token_log_ratio_max=math.log(ratio),
        staleness_log_ratio=None if gap is None else math.log(ratio),
        mismatch=None if gap is None else make_mismatch(gap, tokens=tokens, diff=diff),
    )


def make_update(
    sequences: Sequence[SequenceStats] = (),
    *,
    loss: float = 0.0,
    kl_loss: float = 0.0,
    norm: float = 1.0,
    updated: bool = True,
    nonfinite: tuple[str, ...] = (),
    tokens: int = 100,
    seconds: float = 2.0,
) -> UpdateStats:
    return UpdateStats(
        loss=loss,
        kl_loss=kl_loss,
        grad_norm=norm,
        learning_rate=2e-4,
        updated=updated,
        nonfinite=nonfinite,
        num_sequences=8,
        sequences=tuple(sequences),
        tokens=tokens,
        computed_tokens=tokens // 2,
        seconds=seconds,
    )


def make_record(
    groups: Sequence[Group] | None = None, updates: Sequence[UpdateStats] = (), **fields: Any
) -> StepRecord:
    """A step whose rewards, advantages and counts are those of its groups, without penalty or mask."""
    groups = groups or [make_group()]
    rewards_PG = [judged_rewards(group) for group in groups]
    return StepRecord(
        **{
            "step": 2,
            "groups_P": groups,
            "rewards_PG": rewards_PG,
            "advantages_PG": group_advantages(rewards_PG),
            "counted_PG": [counted(group, mask_truncated=False) for group in groups],
            "updates": updates,
            **fields,
        }
    )
