"""Everything a run reads, checked before anything is started: model, tokenizer, problems, prompts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_ray.config import RewardConfig, RunConfig
from gspo_ray.data.prompts import PromptBuilder, PromptSet, build_prompts
from gspo_ray.data.sources import load_problems
from gspo_ray.errors import DataError, ModelError
from gspo_ray.evaluation.records import DataManifest
from gspo_ray.models import context_length, resolve_model
from gspo_ray.probe import DEFAULT_TOLERANCE, AdapterProbe
from gspo_ray.reward.golds import check_golds

GOLD_CHECK_S = 60.0  # at most; plain numbers cost nothing


@dataclass(frozen=True, slots=True)
class EvalInputs:
    prompts: PromptSet
    manifest: DataManifest
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunInputs:
    prompts: PromptSet
    probe: AdapterProbe
    evaluation: EvalInputs | None  # None: eval.every is 0
    warnings: tuple[str, ...]


def load_inputs(config: RunConfig) -> RunInputs:
    """Raises UserError (model, data or config) with the message a person can act on."""
    tokenizer = _tokenizer(config)
    _check_adapted_layers(config)
    builder = PromptBuilder(tokenizer, config.data.prompt)
    prompts = build_prompts(load_problems(config.data), builder, max_prompt_tokens=config.data.max_prompt_tokens)
    shortest = min(prompts.prompts, key=lambda prompt: len(prompt.token_ids))
    reply = tokenizer.encode(f"The answer is \\boxed{{{shortest.problem.answer}}}.", add_special_tokens=False)
    reply = reply[: config.rollout.max_tokens - 1]  # scoring generates one token more, which must fit as well
    num_prompt = len(shortest.token_ids) - (0 if reply else 1)
    tolerance = config.rollout.probe_tolerance or DEFAULT_TOLERANCE[config.model.dtype]
    probe = AdapterProbe((*shortest.token_ids, *reply), num_prompt, tolerance)
    evaluation = _eval_inputs(config, builder) if config.eval.every else None
    warnings = [prompts.describe()] if prompts.dropped else []
    warnings += [*_unreadable_golds(prompts, config.reward), *(evaluation.warnings if evaluation else ())]
    return RunInputs(prompts=prompts, probe=probe, evaluation=evaluation, warnings=tuple(warnings))


def load_eval_inputs(config: RunConfig) -> EvalInputs:
    """For an evaluation alone. Raises UserError as `load_inputs` does, also for a prompt that is too long: leaving it
    out would change what is measured."""
    return _eval_inputs(config, PromptBuilder(_tokenizer(config), config.data.prompt))


def _eval_inputs(config: RunConfig, builder: PromptBuilder) -> EvalInputs:
    problems = load_problems(config.eval, section="eval")
    prompts = build_prompts(problems, builder, max_prompt_tokens=config.data.max_prompt_tokens)
    if prompts.dropped:
        longest = max(count for _, count in prompts.dropped)
        raise DataError(
            f"{len(prompts.dropped)} evaluation prompts are longer than data.max_prompt_tokens="
            f"{config.data.max_prompt_tokens}, the longest {longest} tokens. Raise it: an evaluation leaves none out."
        )
    path = Path(config.eval.path).expanduser() if config.eval.path else None
    if path is None:
        digest = hashlib.sha256(repr(problems).encode()).hexdigest()
    else:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    name = config.eval.source if path is None else path.stem
    manifest = DataManifest(name=name, sha256=digest, problems=len(problems))
    return EvalInputs(prompts, manifest, tuple(_unreadable_golds(prompts, config.reward)))


def _unreadable_golds(prompts: PromptSet, reward: RewardConfig) -> list[str]:
    """A sentence when there are some. Raises DataError when no gold answer can be read at all."""
    golds = [prompt.problem.answer for prompt in prompts.prompts]
    report = check_golds(
        golds,
        num_workers=reward.num_workers,
        timeout_s=reward.timeout_s,
        memory_limit_mib=reward.memory_limit_mib,
        budget_s=GOLD_CHECK_S,
    )
    if sum(fault.num_problems for fault in report.faults) == len(golds):
        raise DataError(f"{report.message}: nothing could ever be right. Check the answer column.")
    return [f"{report.message}. Their completions cannot be judged."] if report.message else []


def _check_adapted_layers(config: RunConfig) -> None:
    """Before anything starts: a model or layer that learner or engine cannot adapt is refused by name."""
    from gspo_ray.learner.support import check_model

    check_model(
        resolve_model(config.model.path, config.model.revision),
        config.model.revision,
        config.model.lora.target_modules,
        architecture=config.rollout.engine.architecture,
        device=config.cluster.device,
    )


def _tokenizer(config: RunConfig) -> Any:
    model_path = resolve_model(config.model.path, config.model.revision)
    limit = context_length(model_path, config.model.revision)
    if limit is not None and config.max_model_len > limit:
        key = "rollout" if config.max_model_len == config.data.max_prompt_tokens + config.rollout.max_tokens else "eval"
        raise ModelError(
            f"data.max_prompt_tokens={config.data.max_prompt_tokens} + {key}.max_tokens="
            f"{config.max_model_len - config.data.max_prompt_tokens} = {config.max_model_len} tokens, but "
            f"{config.model.path} has a context of {limit}. Lower one of them."
        )
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model_path, revision=config.model.revision)
    except Exception as error:  # of damaged files the library raises KeyError, and a bare Exception
        raise ModelError(
            f"the tokenizer of model.path {config.model.path!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
