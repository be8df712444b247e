"""The same batch through TRL's own trainer: agreement when configured alike, and what its defaults change.

TRL is no dependency; README.md says how to run this. Written against TRL 1.16.0.

`GRPOTrainer.train()` makes one optimizer step of four accumulated micro-batches on the CPU. Two of its methods are
replaced: sampling returns the recorded completions, and the batch that it prepares from them gets the recorded
advantages and old log-probs. Padding, masks, shuffling, splitting, log-probs, ratio, clip, aggregation and accumulation
are TRL's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from gspo_ray.algo.losses import Objective
from tests.conformance.recorded import (
    GROUP_SIZE,
    LIMIT,
    REWARDS,
    Recorded,
    Result,
    gradient_of,
    load_model,
    number_tokenizer,
    record,
    through_gspo_ray,
)

HOW = "needs TRL, see tests/conformance/README.md: pip install --no-deps trl==1.16.0 datasets multiprocess xxhash"
trl = pytest.importorskip("trl", reason=HOW)
datasets = pytest.importorskip("datasets", reason=HOW)
GRPOTrainer: Any = trl.GRPOTrainer

PAPER = {"importance_sampling_level": "sequence", "loss_type": "grpo", "epsilon": 3e-4, "epsilon_high": 4e-4}
# TRL multiplies its KL term by the ratio unless told not to.
PLAIN_KL = {"beta": 0.05, "use_bias_correction_kl": False}
ALIKE: dict[str, tuple[dict[str, Any], Objective]] = {
    "paper": (PAPER, Objective()),
    "paper_with_kl": ({**PAPER, **PLAIN_KL}, Objective(kl_coef=0.05, kl_estimator="k3")),
    "token_mean": ({**PAPER, "loss_type": "dapo"}, Objective(aggregation="token_mean")),
    "constant_length": ({**PAPER, "loss_type": "dr_grpo"}, Objective(aggregation="constant_length")),
    "trl_defaults": ({}, Objective(variant="grpo", aggregation="token_mean", eps_low=0.2, eps_high=0.2)),
}


class RecordedTrainer(GRPOTrainer):
    batch: Recorded
    is_first_update: bool
    losses: list[float]
    own_advantages_B: Tensor

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        assert prompt_ids == [self.batch.prompt_of(row) for row in range(len(self.batch.completions_B))]
        return self.batch.completions_B, None

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        prepared: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert torch.equal(prepared["completion_mask"].bool(), self.batch.mask_BT)
        self.own_advantages_B = prepared["advantages"]
        prepared["advantages"] = self.batch.advantages_B
        prepared["ref_per_token_logps"] = self.batch.reference_logprobs_BT
        if not self.is_first_update:
            prepared["old_per_token_logps"] = self.batch.old_logprobs_BT
        return prepared

    def compute_loss(self, *args: Any, **kwargs: Any) -> Tensor:
        loss: Tensor = super().compute_loss(*args, **kwargs)
        self.losses.append(float(loss.detach()))
        return loss


class KeepGradient(transformers.TrainerCallback):
    gradient: Tensor

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        self.gradient = gradient_of(model).clone()


def through_trl(batch: Recorded, folder: Path, config: dict[str, Any], *, is_first_update: bool) -> RecordedTrainer:
    trainer = RecordedTrainer(
        model=load_model(batch.model_path),
        reward_funcs=lambda completions, **_: [reward for group in REWARDS for reward in group],
        args=trl.GRPOConfig(
            output_dir=str(folder),
            num_generations=GROUP_SIZE,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            max_steps=1,
            max_completion_length=LIMIT,
            max_grad_norm=0.0,  # the gradient as it is
            shuffle_dataset=False,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            **config,
        ),
        train_dataset=datasets.Dataset.from_list(
            [{"prompt": " ".join(f"t{token}" for token in prompt)} for prompt in batch.prompts]
        ),
        processing_class=number_tokenizer(),
        callbacks=[KeepGradient()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.batch, trainer.is_first_update, trainer.losses = batch, is_first_update, []
    trainer.train()
    assert len(trainer.losses) == 4
    return trainer


def result_of(trainer: RecordedTrainer) -> Result:
    (keep,) = (c for c in trainer.callback_handler.callbacks if isinstance(c, KeepGradient))
    return Result(sum(trainer.losses), keep.gradient)


def error_and_cosine(found: Tensor, wanted: Tensor) -> tuple[float, float]:
    found, wanted = found.double(), wanted.double()
    cosine = torch.nn.functional.cosine_similarity(found, wanted, dim=0)
    return float((found - wanted).norm() / wanted.norm()), float(cosine)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def run_trl(batch: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    """Each setting is run once."""
    done: dict[str, Result] = {}

    def run(config: dict[str, Any], *, is_first_update: bool) -> Result:
        key = f"{is_first_update} {sorted(config.items())}"
        if key not in done:
            folder = tmp_path_factory.mktemp("trl")
            done[key] = result_of(through_trl(batch, folder, config, is_first_update=is_first_update))
        return done[key]

    return run


@pytest.mark.parametrize("is_first_update", [True, False], ids=["first_update", "later_update"])
@pytest.mark.parametrize("name", ALIKE)
def test_trl_configured_alike_has_the_same_loss_and_gradient(
    batch: Recorded, run_trl: Callable[..., Result], name: str, is_first_update: bool
) -> None:
    config, objective = ALIKE[name]
    theirs = run_trl(config, is_first_update=is_first_update)
    ours = through_gspo_ray(batch, objective, is_first_update=is_first_update)
    error, cosine = error_and_cosine(theirs.gradient, ours.gradient)
    print(f"\n{name}: loss {theirs.loss:.9f} / {ours.loss:.9f}, gradient error {error:.1e}, cosine {cosine:.9f}")
    # At the first update the paper's loss is minus the mean advantage: 0, and only rounding is left.
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-5, abs=1e-7)
    assert error < 1e-5


# With the relative error of the gradient that the setting makes at the least, at the first and at later updates.
UNLIKE: dict[str, tuple[dict[str, Any], float, float]] = {
    "TRL defaults (token / dapo / 0.2)": ({}, 0.5, 0.5),
    "sequence ratio alone": ({"importance_sampling_level": "sequence"}, 0.5, 0.5),
    "paper, loss_type dapo": ({**PAPER, "loss_type": "dapo"}, 0.5, 0.5),
    "paper, loss_type dr_grpo": ({**PAPER, "loss_type": "dr_grpo"}, 0.5, 0.5),
    "paper, epsilon 0.2": ({**PAPER, "epsilon": 0.2, "epsilon_high": 0.2}, 0.0, 0.1),
    "paper, token ratio": ({**PAPER, "importance_sampling_level": "token"}, 0.0, 0.1),
}


def test_trl_defaults_are_another_objective(batch: Recorded, run_trl: Callable[..., Result]) -> None:
    print("\n| TRL setting | first update: error | cosine | later update: error | cosine |\n|---|---|---|---|---|")
    paper = {first: through_gspo_ray(batch, Objective(), is_first_update=first) for first in (True, False)}
    too_close = []
    for name, (config, *least) in UNLIKE.items():
        cells = []
        for is_first_update, bound in zip((True, False), least, strict=True):
            theirs = run_trl(config, is_first_update=is_first_update)
            error, cosine = error_and_cosine(theirs.gradient, paper[is_first_update].gradient)
            cells += [f"{error:.2g}", f"{cosine:.3f}"]
            too_close += [name] if error < bound else []
        print(f"| {name} | {' | '.join(cells)} |")
    assert too_close == []


def test_trl_scales_advantages_with_another_epsilon(batch: Recorded, tmp_path: Path) -> None:
    """(r - mean) / (std + 1e-4), where the paper has no such term and gspo_ray 1e-8."""
    theirs_B = through_trl(batch, tmp_path, PAPER, is_first_update=True).own_advantages_B
    std_B = torch.tensor([torch.tensor(group).std() for group in REWARDS for _ in group])
    torch.testing.assert_close(theirs_B, batch.advantages_B * (std_B + 1e-8) / (std_B + 1e-4), rtol=1e-5, atol=1e-6)
    error, _ = error_and_cosine(theirs_B, batch.advantages_B)
    assert 1e-4 < error < 3e-4
