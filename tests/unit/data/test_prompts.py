"""Prompts with the demo model's real tokenizer."""

from typing import Any

import pytest

from gspo_ray.config import PromptConfig
from gspo_ray.data.prompts import PromptBuilder, build_prompts
from gspo_ray.errors import DataError, ModelError
from gspo_ray.types import Problem

DEMO = PromptConfig(
    template="{question} Put your final answer within \\boxed{}.", examples=[("What is 2 + 2?", "2 + 2 = \\boxed{4}")]
)


def problem(question: str, problem_id: str = "p") -> Problem:
    return Problem(problem_id=problem_id, question=question, answer="1", source="test")


def test_demo_prompt(tokenizer: Any) -> None:
    prompt = PromptBuilder(tokenizer, DEMO).build(problem(" What is 3 + 4?\n"))
    assert len(prompt.token_ids) == 88
    assert tokenizer.decode(prompt.token_ids) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is 2 + 2? Put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>assistant\n2 + 2 = \\boxed{4}<|im_end|>\n"
        "<|im_start|>user\nWhat is 3 + 4? Put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_system_and_braces(tokenizer: Any) -> None:
    config = PromptConfig(system="Be brief.", template="Q: {question} \\boxed{}")
    prompt = PromptBuilder(tokenizer, config).build(problem("Is {question} in {x}?"))
    text = tokenizer.decode(prompt.token_ids)
    assert text.startswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nQ: Is {question} in {x}? \\boxed{}"
    )


def test_enable_thinking_reaches_the_template(tokenizer: Any) -> None:
    tokenizer = clone(
        tokenizer, "{{ messages[0]['content'] }}{% if enable_thinking is false %}<think></think>{% endif %}"
    )
    on, off = (
        tokenizer.decode(PromptBuilder(tokenizer, PromptConfig(enable_thinking=value)).build(problem("q")).token_ids)
        for value in (True, False)
    )
    assert off == on + "<think></think>"


def test_no_second_bos(tokenizer: Any) -> None:
    bos = tokenizer.bos_token
    single = clone(tokenizer, "{{ bos_token }}{{ messages[0]['content'] }}")
    assert PromptBuilder(single, PromptConfig()).build(problem("q")).token_ids.count(tokenizer.bos_token_id) == 1
    double = clone(tokenizer, bos + "{{ bos_token }}{{ messages[0]['content'] }}")
    with pytest.raises(ModelError, match="two BOS"):
        PromptBuilder(double, PromptConfig()).build(problem("q"))


def test_tokenizer_without_template(tokenizer: Any) -> None:
    with pytest.raises(ModelError, match=r"no chat template.*instruction-tuned"):
        PromptBuilder(clone(tokenizer, None), PromptConfig())


def test_template_that_refuses(tokenizer: Any) -> None:
    refusing = clone(tokenizer, "{{ raise_exception('System role not supported') }}")
    with pytest.raises(DataError, match=r"prompt of add-1-2: System role not supported.*data\.prompt\.system"):
        PromptBuilder(refusing, PromptConfig(system="hi \\boxed{}")).build(problem("q", "add-1-2"))


def test_too_long_prompts_are_dropped_and_named(tokenizer: Any) -> None:
    builder = PromptBuilder(tokenizer, DEMO)
    problems = [problem("What is 3 + 4?", "short"), problem("What is 3 + 4? " * 20, "long")]
    prompts = build_prompts(problems, builder, max_prompt_tokens=88)
    assert [prompt.problem.problem_id for prompt in prompts.prompts] == ["short"]
    [(name, count)] = prompts.dropped
    assert name == "long"
    assert count > 88
    assert prompts.describe() == (
        f"1 prompt of 88 to 88 tokens; 1 dropped, longer than data.max_prompt_tokens=88: long ({count})"
    )
    assert build_prompts(problems[:1], builder, max_prompt_tokens=88).describe() == "1 prompt of 88 to 88 tokens"


def test_nothing_left(tokenizer: Any) -> None:
    builder = PromptBuilder(tokenizer, DEMO)
    with pytest.raises(
        DataError, match=r"no prompt is left: 1 dropped.*shortest has 88 tokens; raise data\.max_prompt"
    ):
        build_prompts([problem("What is 3 + 4?")], builder, max_prompt_tokens=87)
    with pytest.raises(DataError, match="no problems"):
        build_prompts([], builder, max_prompt_tokens=87)


def clone(tokenizer: Any, template: str | None) -> Any:
    import copy

    other = copy.deepcopy(tokenizer)
    other.chat_template = template
    return other
