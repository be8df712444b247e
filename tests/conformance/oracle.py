"""The objective a second time, to check the first by: plain loops over sequences and tokens, 40-digit decimals.

Shares nothing with `gspo_ray.algo`: no tensors, no automatic differentiation (the gradients are worked out by hand), no
binary floating point. Inputs are taken as the binary numbers that they are, results are rounded to float64 once, at the
end; so they are the same to the last bit on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from typing import Any

CONTEXT = Context(prec=40)
STD_EPS = Decimal("1e-8")

Case = dict[str, Any]
Row = Sequence[float | None]


@dataclass
class Outcome:
    loss: Decimal = Decimal(0)
    loss_scale: Decimal = Decimal(0)  # the same sum with every term positive
    gradient: list[list[Decimal]] = field(default_factory=list)  # d loss / d logprobs
    log_ratio: list[Decimal] = field(default_factory=list)  # log s_i
    clipped_tokens: list[int] = field(default_factory=list)


def evaluate(case: Case) -> Outcome:
    """Loss and gradient of a case of kind `loss`."""
    with localcontext(CONTEXT):
        outcome = Outcome()
        for row in range(len(case["inputs"]["logprobs"])):
            _add_sequence(case, row, outcome)
        return outcome


def _add_sequence(case: Case, row: int, outcome: Outcome) -> None:
    settings, inputs = case["settings"], case["inputs"]
    low, high = 1 - Decimal(settings["eps_low"]), 1 + Decimal(settings["eps_high"])
    tokens = [t for t, is_real in enumerate(inputs["mask"][row]) if is_real]
    n = len(tokens)
    log_ratios = {t: Decimal(inputs["logprobs"][row][t]) - Decimal(inputs["old_logprobs"][row][t]) for t in tokens}
    log_s = sum(log_ratios.values(), Decimal(0)) / n
    s = log_s.exp()
    weight = _sequence_weight(settings["aggregation"], n, case["divisor"])
    gradient = [Decimal(0)] * len(inputs["logprobs"][row])
    clipped = 0
    for t in tokens:
        # gspo: n equal terms s A / n, each of which moves with every token by s A / n / n; together s A / n a token.
        ratio = log_ratios[t].exp() if settings["variant"] == "grpo" else s
        advantage = _at(inputs["advantages"], row, t)
        factor = advantage * _at(inputs.get("weights"), row, t)
        is_cut = (advantage > 0 and ratio > high) or (advantage < 0 and ratio < low)
        value = -factor * ((high if advantage > 0 else low) if is_cut else ratio)
        slope = Decimal(0) if is_cut else -factor * ratio  # d ratio / d log-prob = ratio
        outcome.loss_scale += weight / n * abs(value)
        if settings["kl_coef"]:
            kl, kl_slope = _kl(
                settings["kl_estimator"],
                Decimal(inputs["logprobs"][row][t]),
                Decimal(inputs["reference_logprobs"][row][t]),
            )
            value += Decimal(settings["kl_coef"]) * kl
            slope += Decimal(settings["kl_coef"]) * kl_slope
            outcome.loss_scale += weight / n * abs(Decimal(settings["kl_coef"]) * kl)
        outcome.loss += weight / n * value
        gradient[t] = weight / n * slope
        clipped += is_cut
    outcome.gradient.append(gradient)
    outcome.log_ratio.append(log_s)
    outcome.clipped_tokens.append(clipped)


def _sequence_weight(aggregation: str, n: int, divisor: dict[str, int]) -> Decimal:
    if aggregation == "sequence_mean":
        return 1 / Decimal(divisor["num_sequences"])
    if aggregation == "token_mean":
        return n / Decimal(divisor["num_tokens"])
    if aggregation == "constant_length":
        return n / Decimal(divisor["num_sequences"] * divisor["max_tokens"])
    raise ValueError(f"unknown aggregation {aggregation!r}")


def _kl(estimator: str, logprob: Decimal, reference: Decimal) -> tuple[Decimal, Decimal]:
    """The estimate of KL(policy || reference) at one token, and its derivative by the policy's log-prob."""
    x = reference - logprob
    if estimator == "k1":
        return -x, Decimal(1)
    if estimator == "k2":
        return x * x / 2, -x
    if estimator == "k3":
        return x.exp() - x - 1, 1 - x.exp()
    raise ValueError(f"unknown estimator {estimator!r}")


def advantages(rewards_by_group: Sequence[Row], kind: str) -> list[list[Decimal]]:
    with localcontext(CONTEXT):
        if kind != "batch":
            return [_centred(group, kind) for group in rewards_by_group]
        together = _centred([reward for group in rewards_by_group for reward in group], "sample")
        starts = [sum(len(group) for group in rewards_by_group[:i]) for i in range(len(rewards_by_group))]
        return [together[start : start + len(group)] for start, group in zip(starts, rewards_by_group, strict=True)]


def _centred(rewards: Row, kind: str) -> list[Decimal]:
    judged = [Decimal(reward) for reward in rewards if reward is not None]
    if len(set(judged)) < 2:
        return [Decimal(0)] * len(rewards)
    count, total = len(judged), sum(judged, Decimal(0))
    squares = sum(((reward - total / count) ** 2 for reward in judged), Decimal(0))

    def advantage(reward: Decimal) -> Decimal:
        if kind == "leave_one_out":
            return reward - (total - reward) / (count - 1)
        centred = reward - total / count
        if kind == "sample":
            return centred / ((squares / (count - 1)).sqrt() + STD_EPS)
        if kind == "population":
            return centred / ((squares / count).sqrt() + STD_EPS)
        if kind == "mean_only":
            return centred
        raise ValueError(f"unknown kind {kind!r}")

    return [Decimal(0) if reward is None else advantage(Decimal(reward)) for reward in rewards]


def mismatch_weights(case: Case) -> dict[str, list[Any]]:
    """`weights`, `raw` and `touched_tokens` of a case of kind `mismatch_weights`."""
    settings, inputs = case["settings"], case["inputs"]
    mode = settings["mode"]
    cap, low, high = (Decimal(settings[name]) for name in ("cap", "band_low", "band_high"))
    result: dict[str, list[Any]] = {"weights": [], "raw": [], "touched_tokens": []}
    with localcontext(CONTEXT):
        for row, mask in enumerate(inputs["mask"]):
            gaps = [
                Decimal(inputs["learner_logprobs"][row][t]) - Decimal(inputs["sampler_logprobs"][row][t])
                for t, is_real in enumerate(mask)
                if is_real
            ]
            raw = (sum(gaps, Decimal(0)) / len(gaps)).exp()
            weight: Any = Decimal(1)
            touched = 0
            if mode == "token_truncate":
                ratios = [gap.exp() for gap in gaps]
                raw = sum(ratios, Decimal(0)) / len(ratios)
                real = iter(ratios)
                weight = [min(next(real), cap) if is_real else None for is_real in mask]
                touched = sum(ratio > cap for ratio in ratios)
            elif mode == "sequence_truncate" and raw > cap:
                weight, touched = cap, len(gaps)
            elif mode == "sequence_truncate":
                weight = raw
            elif mode == "sequence_mask" and not low <= raw <= high:
                weight, touched = Decimal(0), len(gaps)
            result["weights"].append(weight)
            result["raw"].append(raw)
            result["touched_tokens"].append(touched)
    return result


def _at(values: Any, row: int, t: int) -> Decimal:
    """One value a sequence, or one a token; 1 where there are none."""
    if values is None:
        return Decimal(1)
    return Decimal(values[row][t] if isinstance(values[row], list) else values[row])
