"""One GSPO update, alone or as one of several ranks: synchronous, Ray-free. The order of work follows the paper's
algorithm."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.batch import TrainBatch, completion_mask, unjudged_batch
from gspo_ray.algo.losses import Objective, policy_loss
from gspo_ray.algo.mismatch import MismatchCorrection, MismatchWeights, mismatch_weights
from gspo_ray.algo.stats import SequenceStats, UpdateStats
from gspo_ray.config import AlgoConfig, LearnerConfig, ModelConfig
from gspo_ray.errors import LearnerError
from gspo_ray.learner.distributed import ALONE, Ranks
from gspo_ray.learner.model import build_policy
from gspo_ray.learner.schedule import learning_rate
from gspo_ray.learner.scorer import choose_scorer
from gspo_ray.learner.sequence_stats import at_sampling_weights, sequence_stats
from gspo_ray.learner.sharding import IDLE, shard_base
from gspo_ray.learner.shares import share
from gspo_ray.learner.weights import export_adapter, import_adapter
from gspo_ray.types import Adapter, LearnerState

MAX_REFUSED_IN_A_ROW = 3  # updates


@dataclass(frozen=True, slots=True)
class _Share:
    """What one rank's rows added to an update."""

    loss: float
    kl_loss: float
    tokens: int
    computed_tokens: int
    sequences: list[SequenceStats]


class LoraLearner:
    """Holds the policy and its optimizer. `temperature` is the sampler's: both sides score one distribution.

    With several ranks each has the whole batch, computes its share of the rows, and does the same update: adapter and
    optimizer are the same on all of them, to the last bit. All calls but the exports are made on all ranks.
    """

    def __init__(
        self,
        model_path: str,
        *,
        model: ModelConfig,
        algo: AlgoConfig,
        learner: LearnerConfig,
        temperature: float,
        max_tokens: int,
        total_steps: int,
        device: str,
        seed: int,
        ranks: Ranks = ALONE,
    ) -> None:
        self._total_steps, self._max_tokens = total_steps, max_tokens
        self._algo, self._config, self._temperature, self._device = algo, learner, temperature, device
        self._ranks = ranks
        self._objective = Objective(
            variant=algo.variant,
            eps_low=algo.eps_low,
            eps_high=algo.eps_high,
            aggregation=algo.aggregation,
            kl_coef=algo.kl.coef,
            kl_estimator=algo.kl.estimator,
        )
        self._correction = MismatchCorrection(**algo.mismatch.model_dump())
        self._model = build_policy(
            model_path,
            model,
            device="cpu" if learner.shard_base else device,
            seed=seed,
            gradient_checkpointing=learner.gradient_checkpointing,
        )
        ranks.require_equal(self._model.parameters(), "the model")
        if learner.shard_base:
            shard_base(self._model, device=device, num_ranks=ranks.size)
        self._scorer, self.how_rows_are_computed = choose_scorer(self._model, device)
        if len(set(ranks.run(lambda: self._scorer.shares_prompts))) > 1:  # they would cut the batch in different ways
            raise LearnerError("some learner ranks take packed rows and others do not: are their machines alike?")
        self._trainable = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._trainable.values(),
            lr=learner.learning_rate,
            betas=(learner.beta1, learner.beta2),
            eps=learner.adam_eps,
            weight_decay=learner.weight_decay,
            fused=True,
        )
        self._version_step = 0
        self._refused_in_a_row = 0

    def fill_old_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        """With log-probs at the current weights, for batches that get several updates; rows not computed stay zero.

        The same micro-batches as `step` will see, so that the first ratio is 1 to the last bit.
        """
        return replace(minibatch, old_logprobs_BT=self._score_rows(minibatch))

    def fill_reference_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        """With log-probs of the reference policy: the same model with the adapter switched off."""
        with self._model.disable_adapter():
            return replace(minibatch, reference_logprobs_BT=self._score_rows(minibatch))

    def step(self, minibatch: TrainBatch, *, step: int) -> UpdateStats:
        """One AdamW update for training step `step`. No update when no row has a gradient, or when a gradient is
        not finite (then nothing of adapter or optimizer has changed). Raises LearnerError for unusable numbers."""
        started = time.perf_counter()
        self._optimizer.zero_grad(set_to_none=True)
        shares = self._ranks.run(partial(self._gradients, minibatch))
        sequences = tuple(stats for share in shares for stats in share.sequences)
        grad_norm, updated = 0.0, False
        nonfinite: tuple[str, ...] = ()
        if sequences:
            self._ranks.sum_gradients(list(self._trainable.values()))
            grad_norm, nonfinite = self._clip_gradients()
            self._stop_after_refusals(nonfinite)
            if not nonfinite:
                for group in self._optimizer.param_groups:
                    group["lr"] = self._learning_rate(step)
                self._optimizer.step()
                self._version_step, updated = step, True
                self._ranks.require_equal(self._trainable.values(), f"after step {step} the adapter")
            self._optimizer.zero_grad(set_to_none=True)
        return UpdateStats(
            loss=sum(share.loss for share in shares),
            kl_loss=sum(share.kl_loss for share in shares),
            grad_norm=grad_norm,
            learning_rate=self._learning_rate(step),
            updated=updated,
            nonfinite=nonfinite,
            num_sequences=minibatch.num_sequences,
            sequences=sequences,
            tokens=sum(share.tokens for share in shares),
            computed_tokens=sum(share.computed_tokens for share in shares),
            seconds=time.perf_counter() - started,
        )

    def _stop_after_refusals(self, nonfinite: tuple[str, ...]) -> None:
        self._refused_in_a_row = self._refused_in_a_row + 1 if nonfinite else 0
        if self._refused_in_a_row == MAX_REFUSED_IN_A_ROW:
            raise LearnerError(
                f"{MAX_REFUSED_IN_A_ROW} updates in a row had a gradient that is not finite, the last in "
                f"{len(nonfinite)} tensors, first {nonfinite[0]}: this does not heal. The last checkpoint is intact; "
                "go on from it with a lower learner.learning_rate, or with model.dtype=float32."
            )

    def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        """Log-probs of token_ids[num_prompt:] at temperature 1 and the current weights."""
        batch = unjudged_batch([(token_ids[:num_prompt], [token_ids[num_prompt:]])])
        with torch.no_grad():
            return self._scorer.logprobs(batch, 1.0)[0].tolist()

    def export_adapter(self) -> Adapter:
        return export_adapter(self._model, step=self._version_step)

    def export_state(self) -> LearnerState:
        buffer = io.BytesIO()
        torch.save(self._optimizer.state_dict(), buffer)
        return LearnerState(adapter=self.export_adapter(), optimizer=buffer.getvalue())

    def load_state(self, state: LearnerState) -> None:
        import_adapter(self._model, state.adapter)
        self._optimizer.load_state_dict(torch.load(io.BytesIO(state.optimizer), weights_only=True))
        for group in self._optimizer.param_groups:
            group.update(self._optimizer.defaults)  # learning rate and the like: as configured now, not as saved
        self._version_step = state.adapter.version.step

    def _learning_rate(self, step: int) -> float:
        return learning_rate(self._config, step=step, total_steps=self._total_steps)

    def _micro_batches(self, batch: TrainBatch) -> Iterator[tuple[Tensor | None, TrainBatch]]:
        """This rank's share of the rows to compute, cut to what goes through the model at once.

        With base weights in pieces, also passes without rows: as many on every rank.
        """
        active_R = batch.active_rows(with_kl=self._objective.kl_coef > 0)
        shares = share(batch, active_R, self._ranks.size, shared_prompts=self._scorer.shares_prompts)
        cuts = [self._cut(batch, rows_R) for rows_R in shares]
        mine = cuts[self._ranks.rank]
        yield from ((rows_R, batch.rows(rows_R)) for rows_R in mine)
        if self._config.shard_base:
            yield from [(None, IDLE)] * (max(map(len, cuts)) - len(mine))

    def _cut(self, batch: TrainBatch, rows_R: Tensor) -> list[Tensor]:
        if not len(rows_R):
            return []
        part, budget = batch.rows(rows_R), self._config.micro_batch_tokens
        return [rows_R[i_R] for i_R in self._scorer.micro_batches(part, budget, with_kl=self._objective.kl_coef > 0)]

    def _score_rows(self, minibatch: TrainBatch) -> Tensor:
        scored_BT = torch.zeros_like(minibatch.sampler_logprobs_BT)
        for pieces in self._ranks.run(lambda: list(self._score_share(minibatch))):
            for rows_R, logprobs_RT in pieces:
                scored_BT[rows_R, : logprobs_RT.shape[1]] = logprobs_RT
        return scored_BT

    @torch.no_grad()
    def _score_share(self, minibatch: TrainBatch) -> Iterator[tuple[Tensor, Tensor]]:
        for rows_R, part in self._micro_batches(minibatch):
            logprobs_RT = self._scorer.logprobs(part, self._temperature).cpu()
            if rows_R is not None:
                yield rows_R, logprobs_RT

    def _gradients(self, minibatch: TrainBatch) -> _Share:
        """Of this rank's share, added to what the parameters have; the divisor is that of the whole mini-batch."""
        loss, kl_loss, tokens, computed_tokens = 0.0, 0.0, 0, 0
        sequences: list[SequenceStats] = []
        for rows_R, part in self._micro_batches(minibatch):
            if rows_R is None:
                self._scorer.logprobs(part, self._temperature).sum().mul(0).backward()
                continue
            part_loss, part_kl_loss, stats = self._backward(part)
            loss, kl_loss = loss + part_loss, kl_loss + part_kl_loss
            sequences += stats
            tokens += int((part.prompt_lens_B + part.completion_lens_B).sum())
            computed_tokens += self._scorer.tokens(part)
        return _Share(loss, kl_loss, tokens, computed_tokens, sequences)

    def _backward(self, part: TrainBatch) -> tuple[float, float, list[SequenceStats]]:
        """Loss, its KL part and what is to be said about each row; gradients are added to."""
        logprobs_RT = self._scorer.logprobs(part, self._temperature)
        current_RT = logprobs_RT.detach().cpu()
        mask_RT = completion_mask(part.completion_lens_B, logprobs_RT.shape[1])
        at_sampling_RT = at_sampling_weights(part, current_RT)
        reference_RT = part.reference_logprobs_BT
        try:
            correction = self._correction_weights(part, at_sampling_RT, mask_RT)
            loss, terms = policy_loss(
                logprobs_RT,
                self._old_logprobs(part, current_RT).to(self._device),
                mask_RT.to(self._device),
                part.advantages_B.to(self._device),
                objective=self._objective,
                divisor=Divisor(
                    num_sequences=part.num_sequences, num_tokens=part.num_tokens, max_tokens=self._max_tokens
                ),
                weights=None if correction is None else correction.weights.to(self._device),
                reference_logprobs_BT=None if reference_RT is None else reference_RT.to(self._device),
            )
            stats = sequence_stats(part, terms, current_RT, at_sampling_RT, mask_RT, correction)
        except ValueError as error:
            raise LearnerError(f"unusable numbers in the loss: {error}") from error
        loss.backward()
        return float(loss.detach()), float(terms.kl_loss), stats

    def _old_logprobs(self, part: TrainBatch, current_RT: Tensor) -> Tensor:
        if self._algo.old_logprobs == "sampler":
            return part.sampler_logprobs_BT
        if self._algo.old_logprobs == "reference":
            if part.reference_logprobs_BT is None:
                raise LearnerError("algo.old_logprobs=reference, but the batch has no reference log-probs")
            return part.reference_logprobs_BT
        # One update a batch: the sampling weights are the current weights.
        return current_RT if part.old_logprobs_BT is None else part.old_logprobs_BT

    def _correction_weights(
        self, part: TrainBatch, at_sampling_RT: Tensor | None, mask_RT: Tensor
    ) -> MismatchWeights | None:
        if self._correction.mode == "none":
            return None
        if at_sampling_RT is None:
            raise LearnerError("algo.mismatch needs log-probs at the sampling weights, and they are not known")
        return mismatch_weights(at_sampling_RT, part.sampler_logprobs_BT, mask_RT, self._correction)

    def _clip_gradients(self) -> tuple[float, tuple[str, ...]]:
        parameters = list(self._trainable.values())
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True)
        if bool(norm.isfinite()):  # else clipping would write NaN into every gradient and hide which one it was
            if self._config.max_grad_norm is not None:
                torch.nn.utils.clip_grads_with_norm_(parameters, self._config.max_grad_norm, norm, foreach=True)
            return float(norm), ()
        broken = [n for n, p in self._trainable.items() if p.grad is not None and not bool(p.grad.isfinite().all())]
        return float(norm), tuple(broken) or ("gradient norm",)
