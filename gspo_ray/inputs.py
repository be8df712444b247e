"""Everything a run reads, checked before anything is started: model, tokenizer, problems, prompts."""

from __future__ import annotations

from dataclasses import dataclass

from gspo_ray.config import RunConfig
from gspo_ray.data.prompts import PromptBuilder, PromptSet, build_prompts
from gspo_ray.data.sources import load_problems
from gspo_ray.errors import ModelError
from gspo_ray.models import context_length, resolve_model
from gspo_ray.probe import DEFAULT_TOLERANCE, AdapterProbe


@dataclass(frozen=True, slots=True)
class RunInputs:
    prompts: PromptSet
    probe: AdapterProbe


def load_inputs(config: RunConfig) -> RunInputs:
    """Raises UserError (model, data or config) with the message a person can act on."""
    model_path = resolve_model(config.model.path, config.model.revision)
    limit = context_length(model_path, config.model.revision)
    if limit is not None and config.max_model_len > limit:
        raise ModelError(
            f"data.max_prompt_tokens={config.data.max_prompt_tokens} + rollout.max_tokens={config.rollout.max_tokens} "
            f"= {config.max_model_len} tokens, but {config.model.path} has a context of {limit}. Lower one of them."
        )
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model_path, revision=config.model.revision)
    except Exception as error:  # of damaged files the library raises KeyError, and a bare Exception
        raise ModelError(
            f"the tokenizer of model.path {config.model.path!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    prompts = build_prompts(
        load_problems(config.data),
        PromptBuilder(tokenizer, config.data.prompt),
        max_prompt_tokens=config.data.max_prompt_tokens,
    )
    shortest = min(prompts.prompts, key=lambda prompt: len(prompt.token_ids))
    reply = tokenizer.encode(f"The answer is \\boxed{{{shortest.problem.answer}}}.", add_special_tokens=False)
    reply = reply[: config.rollout.max_tokens - 1]  # scoring generates one token more, which must fit as well
    num_prompt = len(shortest.token_ids) - (0 if reply else 1)
    tolerance = config.rollout.probe_tolerance or DEFAULT_TOLERANCE[config.model.dtype]
    probe = AdapterProbe((*shortest.token_ids, *reply), num_prompt, tolerance)
    return RunInputs(prompts=prompts, probe=probe)
