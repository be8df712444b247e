"""What a config permits and an expert would question: one sentence each, shown before a run starts."""

from __future__ import annotations

from gspo_ray.config import AlgoConfig, RunConfig

GSPO_BAND_LIMIT = 0.01  # wider than this, the clip of a length-normalised ratio never acts
GRPO_BAND_LIMIT = 0.01  # narrower than this, the clip of a token ratio cuts nearly everything


def advise(config: RunConfig) -> list[str]:
    return _band(config.algo) + _objective(config.algo)


def _band(algo: AlgoConfig) -> list[str]:
    band = f"algo.eps_low={algo.eps_low:g}, algo.eps_high={algo.eps_high:g}"
    if algo.variant != "grpo" and max(algo.eps_low, algo.eps_high) > GSPO_BAND_LIMIT:
        return [
            f"{band} is made for token ratios. The length-normalised ratio of algo.variant={algo.variant} moves by "
            "about 0.001, so the clip would never act. The GSPO paper uses 3e-4 and 4e-4."
        ]
    if algo.variant == "grpo" and max(algo.eps_low, algo.eps_high) < GRPO_BAND_LIMIT:
        return [
            f"{band} is made for sequence ratios. Token ratios (algo.variant=grpo) move by tens of percent, so the "
            "clip would cut nearly every token. GRPO uses 0.2 and 0.2, DAPO 0.2 and 0.28."
        ]
    return []


def _objective(algo: AlgoConfig) -> list[str]:
    advice = []
    if algo.variant != "grpo" and algo.aggregation != "sequence_mean":
        advice.append(
            f"algo.aggregation={algo.aggregation} gives long answers more weight than short ones. GSPO as published "
            "averages over sequences (sequence_mean)."
        )
    if algo.advantage == "batch":
        advice.append(
            "algo.advantage=batch compares completions of different problems: an easy problem's answers all look good "
            "and a hard one's all look bad. The paper compares within a group (sample)."
        )
    if algo.old_logprobs == "reference":
        advice.append(
            "algo.old_logprobs=reference clips against the model without its adapter, not against the policy that "
            "sampled: once the adapter has moved past the band, most gradients are cut for good."
        )
    if algo.kl.coef > 0 and algo.kl.estimator == "k1":
        advice.append(
            "algo.kl.estimator=k1 has no gradient in expectation, so algo.kl.coef only adds noise. Use k2 or k3."
        )
    return advice
