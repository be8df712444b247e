"""Problems rendered as token ids, once, before the run. The ids go through unchanged to sampler and learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gspo_ray.config import PromptConfig
from gspo_ray.errors import DataError, ModelError
from gspo_ray.types import Problem, Prompt


@dataclass(frozen=True, slots=True)
class PromptSet:
    """What is trained on, and what was too long: (problem_id, number of tokens)."""

    prompts: tuple[Prompt, ...]
    dropped: tuple[tuple[str, int], ...]
    max_prompt_tokens: int

    def describe(self) -> str:
        """One sentence for the person: counts, lengths, and why problems were left out."""
        lengths = [len(prompt.token_ids) for prompt in self.prompts]
        text = f"{len(lengths)} prompt{'s' * (len(lengths) != 1)} of {min(lengths)} to {max(lengths)} tokens"
        return f"{text}; {_describe_dropped(self.dropped, self.max_prompt_tokens)}" if self.dropped else text


class PromptBuilder:
    """Renders a problem with the tokenizer's chat template: system, worked examples, the question.

    Example: PromptBuilder(tokenizer, config.data.prompt).build(problem).token_ids  # [m]
    Raises ModelError when the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any, config: PromptConfig) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(
                f"the tokenizer of {getattr(tokenizer, 'name_or_path', None) or 'model.path'} has no chat template, so "
                "problems cannot be turned into prompts. Use the instruction-tuned (chat) variant of the model, or put "
                "a chat_template.jinja into a local copy of its folder."
            )
        self._tokenizer = tokenizer
        self._config = config

    def messages(self, question: str) -> list[dict[str, str]]:
        """The chat before the assistant's turn, as {role, content}."""
        messages = [{"role": "system", "content": self._config.system}] if self._config.system is not None else []
        for example, reply in self._config.examples:
            messages.append({"role": "user", "content": self._user_turn(example)})
            messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": self._user_turn(question)})
        return messages

    def build(self, problem: Problem) -> Prompt:
        """Token ids [m], ending where the assistant's reply begins. Raises DataError when the template refuses."""
        from jinja2 import TemplateError

        try:
            # return_dict: v5 returns a mapping by default, v4 a list. No second tokenisation, hence no second BOS.
            token_ids = self._tokenizer.apply_chat_template(
                self.messages(problem.question),
                tokenize=True,
                add_generation_prompt=True,
                return_dict=False,
                enable_thinking=self._config.enable_thinking,
            )
        except TemplateError as error:
            raise DataError(
                f"the model's chat template refuses the prompt of {problem.problem_id}: {error}. "
                "Some templates take no system turn: move data.prompt.system into data.prompt.template."
            ) from error
        ids = tuple(int(token) for token in token_ids)
        bos = getattr(self._tokenizer, "bos_token_id", None)
        if not ids or (bos is not None and ids[:2] == (bos, bos)):
            raise ModelError(
                f"the chat template renders {problem.problem_id} {'to nothing' if not ids else 'with two BOS tokens'}. "
                "Mend chat_template in the model's tokenizer files."
            )
        return Prompt(problem=problem, token_ids=ids)

    def _user_turn(self, question: str) -> str:
        return self._config.template.replace("{question}", question.strip())


def build_prompts(problems: Sequence[Problem], builder: PromptBuilder, *, max_prompt_tokens: int) -> PromptSet:
    """Prompts of at most `max_prompt_tokens`, in the order of `problems`. Raises DataError when none is left."""
    prompts: list[Prompt] = []
    dropped: list[tuple[str, int]] = []
    for problem in problems:
        prompt = builder.build(problem)
        if len(prompt.token_ids) <= max_prompt_tokens:
            prompts.append(prompt)
        else:
            dropped.append((problem.problem_id, len(prompt.token_ids)))
    if not prompts:
        if not dropped:
            raise DataError("there are no problems to make prompts of. Check data.path.")
        raise DataError(
            f"no prompt is left: {_describe_dropped(dropped, max_prompt_tokens)}. The shortest has "
            f"{min(count for _, count in dropped)} tokens; raise data.max_prompt_tokens or shorten data.prompt."
        )
    return PromptSet(prompts=tuple(prompts), dropped=tuple(dropped), max_prompt_tokens=max_prompt_tokens)


def _describe_dropped(dropped: Sequence[tuple[str, int]], limit: int) -> str:
    named = ", ".join(f"{problem_id} ({count})" for problem_id, count in dropped[:5])
    more = f" and {len(dropped) - 5} more" if len(dropped) > 5 else ""
    return f"{len(dropped)} dropped, longer than data.max_prompt_tokens={limit}: {named}{more}"
