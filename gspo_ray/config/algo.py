"""algo.*: which objective, against which old log-probs, in how many updates."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from gspo_ray.config.section import Section

DEFAULT_BAND = {"gspo": (3e-4, 4e-4), "gspo_token": (3e-4, 4e-4), "grpo": (0.2, 0.2)}


class KlConfig(Section):
    coef: float = Field(0.0, ge=0)
    """Weight of the KL term to the reference policy, which is the model with the adapter switched off. 0: no term, and
    no forward pass for it."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """k1 has no gradient in expectation: as a loss it only adds noise."""


class MismatchConfig(Section):
    """Weight on a sequence or token for the numeric gap between engine and learner; needs old_logprobs=learner."""

    mode: Literal["none", "sequence_truncate", "sequence_mask", "token_truncate"] = "none"
    """sequence_truncate: min(w, cap), w = exp(mean token gap); sequence_mask: only sequences with band_low <= w <=
    band_high train; token_truncate: min(exp(token gap), cap) for each token (gspo_token and grpo)."""
    cap: float = Field(2.0, ge=1)
    band_low: float = Field(0.99, gt=0, le=1)
    band_high: float = Field(1.01, ge=1)


class OverlongConfig(Section):
    mode: Literal["keep", "mask", "soft_penalty"] = "keep"
    """What happens to completions that max_tokens cut off. keep: judged like any other; mask: neither in the loss nor
    in its divisor; soft_penalty: every reward falls linearly by up to 1 over the last buffer_tokens (DAPO)."""
    buffer_tokens: int = Field(512, ge=1)


class DynamicSamplingConfig(Section):
    max_tries: int = Field(0, ge=0)
    """How often a step replaces its groups without a learning signal by new problems (DAPO). 0: never. What is still
    degenerate after the last try is kept, so that a step always ends."""


class AlgoConfig(Section):
    variant: Literal["gspo", "gspo_token", "grpo"] = "gspo"
    """gspo: one length-normalised ratio and one clip a sequence; gspo_token: the same in token form; grpo: a ratio and
    a clip for each token."""
    eps_low: float = Field(3e-4, gt=0, lt=1)
    eps_high: float = Field(4e-4, gt=0, lt=1)
    """The clip band [1 - eps_low, 1 + eps_high] of the ratio. Not given: 3e-4 / 4e-4 (GSPO paper, section 5.1), with
    grpo 0.2 / 0.2 (DAPO: 0.2 / 0.28)."""
    aggregation: Literal["sequence_mean", "token_mean", "constant_length"] = "sequence_mean"
    """sequence_mean: the paper; token_mean: DAPO, long answers weigh more; constant_length: Dr. GRPO, token sums over
    rollout.max_tokens."""
    advantage: Literal["sample", "population", "mean_only", "leave_one_out", "batch"] = "sample"
    """Reward minus group mean, over the group's std with N - 1 (sample) or N (population) in the divisor, or over
    nothing (mean_only: Dr. GRPO); minus the mean of the others (leave_one_out: RLOO); batch: over all groups of the
    step, so that problems are compared with each other."""
    old_logprobs: Literal["learner", "sampler", "reference"] = "learner"
    """Denominator of the ratio: the learner's own log-probs at the sampling weights, the engine's numbers, or those of
    the model with the adapter switched off."""
    num_minibatches: int = Field(1, ge=1)
    """Optimizer updates in one pass over a rollout batch (the paper: 4)."""
    num_epochs: int = Field(1, ge=1)
    """Passes over one rollout batch."""
    minibatch_rows: Literal["groups", "shuffled"] = "groups"
    """Mini-batches are made of whole groups, or of single sequences in random order. Advantages are by group anyway."""
    kl: KlConfig = KlConfig()
    mismatch: MismatchConfig = MismatchConfig()
    overlong: OverlongConfig = OverlongConfig()
    dynamic_sampling: DynamicSamplingConfig = DynamicSamplingConfig()

    @model_validator(mode="before")
    @classmethod
    def _band_of_the_variant(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("variant") in DEFAULT_BAND:
            low, high = DEFAULT_BAND[values["variant"]]
            values = {"eps_low": low, "eps_high": high} | values
        return values

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.mismatch.mode != "none" and self.old_logprobs != "learner":
            raise ValueError(
                f"algo.mismatch.mode is {self.mismatch.mode!r} but algo.old_logprobs is {self.old_logprobs!r}: the "
                "ratio then holds the gap between engine and learner already, and it would count twice. "
                "Use algo.old_logprobs=learner, or algo.mismatch.mode=none."
            )
        if self.mismatch.mode == "token_truncate" and self.variant == "gspo":
            raise ValueError(
                "algo.mismatch.mode=token_truncate weighs single tokens, and gspo has one ratio a sequence: use "
                "algo.variant=gspo_token (the same value and gradient), or sequence_truncate."
            )
        return self

    @property
    def updates_per_step(self) -> int:
        return self.num_minibatches * self.num_epochs

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether the learner has to score a batch before its first update; with one update the value is at hand."""
        return self.old_logprobs == "learner" and self.updates_per_step > 1

    @property
    def needs_reference(self) -> bool:
        return self.kl.coef > 0 or self.old_logprobs == "reference"
