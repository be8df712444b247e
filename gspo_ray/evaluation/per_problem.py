"""Numbers of one problem from its n samples. Every rate of an evaluation is a mean of these over problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from gspo_ray.evaluation.records import SampleRecord
from gspo_ray.types import Finish, Outcome


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Chance that k samples drawn WITHOUT replacement from n hold a correct one: 1 - C(n-c, k) / C(n, k).

    Unbiased for k <= n (Chen et al. 2021, arXiv:2107.03374, eq. 1). At k = n it is "any of n is correct".
    Example: pass_at_k(4, 1, 4) == 1.0; drawing with replacement would say 1 - (3/4)**4 = 0.684.
    """
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} of {num_correct} correct in {num_samples} samples")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def reported_ks(num_samples: int) -> tuple[int, ...]:
    """1, 2, 4, ... and n itself; one sample allows k = 1 alone.

    Example: reported_ks(12) == (1, 2, 4, 8, 12)
    """
    powers = [1 << exponent for exponent in range(num_samples.bit_length()) if 1 << exponent < num_samples]
    return (*powers, num_samples)


def pass_name(k: int) -> str:
    """The metric of pass@k; at k = 1 it is the average, c / n."""
    return "average" if k == 1 else f"pass@{k}"


def majority_vote(answers: Sequence[str | None], correct: Sequence[bool]) -> float:
    """Chance that the most frequent answer is right when a tie is broken by a fair draw: no draw is made.

    All correct answers are one candidate, however they are written; wrong ones are told apart by their text, white
    space aside (so two spellings of one wrong answer split their votes). Samples without an answer do not vote; no
    vote at all is 0. Example: answers 7, 8, 7, 8 with 7 right give 0.5.
    """
    votes: Counter[str | None] = Counter()  # None: the right answer
    for answer, is_correct in zip(answers, correct, strict=True):
        if is_correct or answer is not None:
            votes[None if is_correct else " ".join(str(answer).split())] += 1
    most = max(votes.values(), default=0)
    tied = [candidate for candidate, count in votes.items() if count == most]
    return 1.0 / len(tied) if None in tied else 0.0


def sample_rates(samples: Sequence[SampleRecord]) -> dict[str, float]:
    """The numbers of one problem under the names of `result.py`."""
    n = len(samples)
    correct = [sample.outcome is Outcome.CORRECT for sample in samples]
    return {
        **correctness_rates(correct),
        "majority": majority_vote([sample.answer for sample in samples], correct),
        "format": sum(sample.formatted for sample in samples) / n,
        "truncated": sum(sample.finish is Finish.LENGTH for sample in samples) / n,
        "tokens": sum(sample.completion_tokens for sample in samples) / n,
    }


def correctness_rates(correct: Sequence[bool]) -> dict[str, float]:
    """avg@n and pass@k of one problem."""
    n, c = len(correct), sum(correct)
    return {pass_name(k): pass_at_k(n, c, k) for k in reported_ks(n)}
