"""What the configuration tree refuses, and what its messages say."""

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from gspo_ray.config import RunConfig, engine_lora_rank
from gspo_ray.config_io import parse_config
from gspo_ray.errors import ConfigError


def nested(dotted: str, value: Any) -> dict[str, Any]:
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return value


def refusal(tree: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(tree, where="run.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("run.yaml: ")
    return message


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("rollout.group_size", 1, "greater than or equal to 2, got 1"),
        ("algo.eps_low", 0, "greater than 0, got 0"),
        ("algo.eps_high", 1.0, "less than 1, got 1.0"),
        ("algo.eps_low", float("nan"), "finite"),
        ("learner.learning_rate", float("inf"), "finite number, got inf"),
        ("learner.learning_rate", "fast", "valid number"),
        ("model.lora.rank", 0, "greater than or equal to 1, got 0"),
        ("model.lora.rank", 1000, "ranks up to 512"),
        ("model.lora.target_modules", "lm_head", "all-linear"),
        ("model.lora.target_modules", ["q_proj", "model.lm_head"], "['model.lm_head']"),
        ("model.lora.target_modules", r".*(q_proj|embed_tokens)", "all-linear"),
        ("model.lora.target_modules", [], "nothing to train"),
        ("model.lora.target_modules", 5, "got 5"),
        ("model.dtype", "float16", "'float32' or 'bfloat16', got 'float16'"),
        ("rollout.top_p", 0.9, "rollout.allow_truncated_distribution"),
        ("rollout.top_k", 50, "rollout.allow_truncated_distribution"),
        ("rollout.top_k", 0, "use -1 to switch it off"),
        ("rollout.top_k", -2, "greater than or equal to -1"),
        ("rollout.temperature", 0, "greater than 0, got 0"),
        ("data.prompt.template", "Solve it in \\boxed{}.", "{question}"),
        ("data.prompt.template", "{question}", "\\boxed{}"),
        ("data.source", "gsm8k", "set data.path"),
        ("data.source", "csv", "'jsonl' or 'parquet', got 'csv'"),
        ("data.path", "train.jsonl", "data.source"),
        ("storage_path", "s3://bucket/runs", "folder"),
        ("name", "a b", "got 'a b'"),
        ("name", 7, "Put it in quotes"),
        ("steps", 0, "greater than or equal to 1, got 0"),
        ("steps", True, "true or false"),
        ("learner.weight_decay", True, "true or false"),
        ("rollout", 5, "group_size, max_tokens"),
        ("learner", None, "a section with keys of its own"),
        ("model.lora", [16], "(rank, alpha, target_modules)"),
        ("rollout.engine.tensor_parallel_size", 0, "got 0"),
    ],
)
def test_a_value_out_of_range_is_refused_by_key(key: str, value: Any, says: str) -> None:
    message = refusal(nested(key, value))
    assert key in message
    assert says in message


def test_more_minibatches_than_groups_are_refused() -> None:
    message = refusal({"algo": {"num_minibatches": 9}, "data": {"problems_per_step": 8}})
    for part in ("algo.num_minibatches is 9", "8 groups (data.problems_per_step)", "Lower"):
        assert part in message


def test_tensor_parallelism_on_cpu_is_refused() -> None:
    tree = {"cluster": {"device": "cpu"}, "rollout": {"engine": {"tensor_parallel_size": 2}}}
    assert "rollout.engine.tensor_parallel_size above 1 needs cluster.device=cuda" in refusal(tree)


def test_a_truncated_distribution_is_accepted_when_asked_for_by_name() -> None:
    config = RunConfig.model_validate({"rollout": {"top_p": 0.9, "top_k": 50, "allow_truncated_distribution": True}})
    assert (config.rollout.top_p, config.rollout.top_k) == (0.9, 50)


def test_the_box_may_be_asked_for_in_the_system_turn() -> None:
    prompt = {"template": "{question}", "system": "Answer in \\boxed{}."}
    assert RunConfig.model_validate({"data": {"prompt": prompt}}).data.prompt.template == "{question}"


def test_rank_512_and_a_list_of_projections_are_accepted() -> None:
    lora = RunConfig.model_validate(
        {"model": {"lora": {"rank": 512, "target_modules": ["q_proj", "v_proj"]}}}
    ).model.lora
    assert (lora.rank, lora.target_modules) == (512, ["q_proj", "v_proj"])


def test_all_faults_are_told_at_once_in_one_line() -> None:
    message = refusal({"steps": 0, "model": {"lora": {"rank": 1000}}, "rollout": {"group_size": 1, "max_token": 5}})
    for part in ("steps: ", "model.lora.rank is 1000", "rollout.group_size: ", "did you mean 'rollout.max_tokens'"):
        assert part in message
    assert ".;" not in message


def test_the_longest_row_is_prompt_plus_completion() -> None:
    tree = {"data": {"max_prompt_tokens": 100}, "rollout": {"max_tokens": 28}}
    assert RunConfig.model_validate(tree).max_model_len == 128


def test_a_config_cannot_be_changed_and_pickles() -> None:
    config = RunConfig(seed=3)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 4  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("style", "asks"), [("answer_line", "Answer: N"), ("hashes", "#### N"), ("boxed", "\\boxed{N}")]
)
def test_the_prompt_has_to_ask_for_the_style_that_is_read(style, asks):
    good = {"data": {"prompt": {"template": "{question} End with " + asks}}, "reward": {"answer_style": style}}
    RunConfig.model_validate(good)
    bad = {"data": {"prompt": {"template": "{question} Think."}}, "reward": {"answer_style": style}}
    with pytest.raises(ValidationError, match="never mentions"):
        RunConfig.model_validate(bad)


def test_a_warm_up_longer_than_the_run_is_refused():
    with pytest.raises(ValidationError, match=r"learner\.warmup_steps is 12"):
        RunConfig.model_validate({"steps": 12, "learner": {"warmup_steps": 12}})


def test_a_length_penalty_over_the_whole_completion_is_refused():
    overlong = {"overlong": {"mode": "soft_penalty", "buffer_tokens": 64}}
    with pytest.raises(ValidationError, match="every length would be punished"):
        RunConfig.model_validate({"rollout": {"max_tokens": 64}, "algo": overlong})


@pytest.mark.parametrize(
    ("algo", "says"),
    [
        ({"mismatch": {"mode": "sequence_mask"}, "old_logprobs": "sampler"}, "it would count twice"),
        ({"mismatch": {"mode": "token_truncate"}}, "use algo.variant=gspo_token"),
    ],
)
def test_corrections_that_do_not_fit_are_refused(algo, says):
    with pytest.raises(ValidationError, match=says):
        RunConfig.model_validate({"algo": algo})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"temperature": 0}, "eval.samples=1"),
        ({"top_k": 0}, "eval.top_k is 0"),
        ({"every": 5, "source": "jsonl"}, "set eval.path"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(settings, says):
    with pytest.raises(ValidationError, match=says):
        RunConfig.model_validate({"eval": settings})


@pytest.mark.parametrize(("rank", "engine"), [(1, 1), (4, 8), (12, 16), (16, 16), (24, 32), (64, 64), (512, 512)])
def test_a_lora_rank_gets_the_next_size_that_vllm_takes(rank: int, engine: int) -> None:
    assert engine_lora_rank(rank) == engine
