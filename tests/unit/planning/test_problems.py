import re
from typing import Any

import pytest

from gspo_ray.planning.noise import ratio_noise
from gspo_ray.planning.policy import policy_without_weights
from gspo_ray.planning.problems import Problem, find_problems
from gspo_ray.planning.shape import model_shape
from tests.unit.planning.conftest import MIXTURE, TINY, Save, model, run_config

GOOD: dict[str, Any] = {
    "data": {"max_prompt_tokens": 100},
    "rollout": {"max_tokens": 300},
    "learner": {"micro_batch_tokens": 4096},
}


def problems(path: str, *, rank: int = 16, **sections: Any) -> list[Problem]:
    config = run_config(path, **(GOOD | sections))
    config = config.model_copy(update={"model": model(path, rank=rank)})
    shape = model_shape(policy_without_weights(path, config.model, gradient_checkpointing=False))
    noise = ratio_noise(config.algo, tokens=200, dtype="bfloat16", device=config.cluster.device, token_noise=0.01)
    return find_problems(config, path, shape, noise)


def test_a_config_that_works_has_none(save: Save) -> None:
    assert problems(save(TINY)) == []


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        # 4 heads
        ({"rollout": {"max_tokens": 300, "engine": {"tensor_parallel_size": 3}}}, "4 attention heads.*Use 2 or 4"),
        ({"rollout": {"max_tokens": 300, "engine": {"max_num_seqs": 2049}}}, "Lower it to 2048"),
        # a context of 512
        ({"rollout": {"max_tokens": 500}}, "600 tokens, but the model has a context of 512.*by 88"),
    ],
)
def test_what_cannot_work(save: Save, sections: dict[str, Any], text: str) -> None:
    (found,) = problems(save(TINY), **sections)
    assert found.fatal
    assert re.search(text, found.text), found.text


def test_key_value_heads_and_tensor_parallel(save: Save) -> None:
    engine = {"tensor_parallel_size": 2}
    path = save(TINY, hidden_size=48, num_attention_heads=6, num_key_value_heads=3)
    (found,) = problems(path, rollout={"max_tokens": 300, "engine": engine})
    assert found.fatal
    assert "3 key-value heads" in found.text


def test_a_mixture_on_the_cpu(save: Save) -> None:
    found = problems(
        save(MIXTURE, num_hidden_layers=1, num_experts=4, num_experts_per_tok=2), cluster={"device": "cpu"}
    )
    assert "vLLM on CPU cannot serve" in found[0].text
    assert found[0].fatal


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        (
            {"rollout": {"max_tokens": 300, "group_size": 8, "engine": {"max_num_seqs": 4}}},
            "less than rollout.group_size=8.*Raise it to 8",
        ),
        (
            {"rollout": {"max_tokens": 300, "group_size": 8, "engine": {"max_num_seqs": 32}}},
            "up to 64 completions.*Raise it to 64",
        ),
        ({"rollout": {"max_tokens": 300, "num_engines": 9}}, "a step has 8 groups"),
        ({"learner": {"micro_batch_tokens": 399}}, "longest row .400 tokens"),
        # token noise of 0.01 over 200 tokens: 7.1e-4, about twice the band
        ({"algo": {"old_logprobs": "sampler"}}, "62% of the sequences of 200 tokens.*old_logprobs=learner"),
        ({"algo": {"advantage": "batch"}}, "compares completions of different problems"),
    ],
)
def test_what_an_expert_would_question(save: Save, sections: dict[str, Any], text: str) -> None:
    (found,) = problems(save(TINY), **sections)
    assert not found.fatal
    assert re.search(text, found.text), found.text


def test_a_rank_that_the_engine_rounds_up(save: Save) -> None:
    (found,) = problems(save(TINY), rank=20)
    assert not found.fatal
    assert "room for 32" in found.text
