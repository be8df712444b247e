"""The whole of it on published models; what a person sees, in text, JSON and exit codes."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gspo_ray.cli import main as cli
from gspo_ray.config import RunConfig
from gspo_ray.errors import ConfigError, ModelError
from gspo_ray.planning import start
from gspo_ray.planning.gpus import GPUS, known_gpus
from gspo_ray.planning.lengths import assumed_lengths
from gspo_ray.planning.memory import GIB
from gspo_ray.planning.plan import Plan, make_plan
from gspo_ray.planning.report import as_json, in_short, render
from tests.unit.planning.conftest import SIZES, TINY, Save, run_config

WIDTH = 110
SMALL: dict[str, Any] = {
    "data": {"max_prompt_tokens": 100},
    "rollout": {"max_tokens": 300},
    "learner": {"micro_batch_tokens": 512},
}
ROOT = Path(__file__).parents[3]


def planned(config: RunConfig, *, completion: int = 1000, **options: Any) -> Plan:
    lengths = assumed_lengths(config, prompt=100, completion=completion)
    return make_plan(config, config.model.path, lengths, known_gpus(), **options)


def text_of(plan: Plan) -> str:
    screen = io.StringIO()
    render(plan, Console(file=screen, width=WIDTH))
    return screen.getvalue()


@pytest.mark.parametrize(("size", "measured"), [("4b", 23.3), ("0.6b", 5.1)])
def test_one_16k_sequence_with_layers_recomputed_beside_another_trainer(save: Save, size: str, measured: float) -> None:
    """prime-rl, LoRA r=16 on one H100. It holds the base weights in float32 (its optimization_dtype), ours are in
    bfloat16; what CUDA itself takes is not in its number."""
    config = run_config(
        save(size),
        data={"max_prompt_tokens": 1},
        rollout={"max_tokens": 16383},
        learner={"micro_batch_tokens": 16384, "gradient_checkpointing": True},
    )
    plan = planned(config, completion=16383, gpu="H100")
    assert plan.learner.tokens == 16384
    hidden, _, layers, _, _ = SIZES[size]
    # Of each layer its input in bfloat16; the rest is what the head and the last norm keep.
    inputs = layers * 16384 * hidden * 2
    assert inputs < plan.learner.activations < 1.2 * inputs
    as_theirs = plan.learner.total - plan.learner.reserve + plan.learner.weights
    assert as_theirs / GIB == pytest.approx(measured, rel=0.05)
    assert plan.works


def test_a_model_that_is_too_large_for_learner_and_engine(save: Save) -> None:
    # An embedding and a head of 2 million x 4096 in bfloat16: 31 GiB
    plan = planned(run_config(save("8b", num_hidden_layers=1, vocab_size=2_000_000)), gpu="A10G")
    assert not plan.works
    fatal = [problem.text for problem in plan.problems if problem.fatal]
    assert len(fatal) == 2  # learner and engine
    assert not plan.by_gpu["L4"].fits


def test_the_cheapest_type_that_fits_is_shown_unless_one_is_named(save: Save) -> None:
    config = run_config(save(TINY), **SMALL)
    plan = planned(config)
    assert plan.gpu is not None
    assert plan.by_gpu[plan.gpu].to_the_end == min(one.to_the_end or 0 for one in plan.by_gpu.values())
    assert planned(config, gpu="NVIDIA H100 80GB HBM3").gpu == "H100"
    labelled = config.model_copy(update={"cluster": config.cluster.model_copy(update={"accelerator_type": "L4"})})
    assert planned(labelled).gpu == "L4"
    with pytest.raises(ConfigError, match="'B200' is none of A10G"):
        planned(config, gpu="B200")


def test_money_is_price_times_gpus_times_time(save: Save) -> None:
    config = run_config(save(TINY), steps=50, **SMALL)
    here = planned(config, gpu="H200").by_gpu["H200"]
    assert here.num_gpus == 2
    assert here.per_step == pytest.approx(2 * (GPUS["H200"].price_per_hour or 0) * here.time.total / 3600)
    assert here.to_the_end == pytest.approx(50 * (here.per_step or 0))


def test_splits(save: Save) -> None:
    config = run_config(
        save(TINY, max_position_embeddings=4096),
        data={"problems_per_step": 64},
        rollout={"num_engines": 3, "max_tokens": 2000},
    )
    plan = planned(config, gpu="H100")
    assert plan.fastest is not None
    assert plan.balanced is not None
    assert plan.fastest.engines + plan.fastest.ranks == 4
    assert plan.fastest.time.total <= plan.by_gpu["H100"].time.total
    assert min(plan.balanced.engines, plan.balanced.ranks) == 1
    one = config.model_copy(update={"cluster": config.cluster.model_copy(update={"colocate": True})})
    assert planned(one, gpu="H100").balanced is None


def test_the_text_is_readable_in_110_columns(save: Save) -> None:
    config = run_config(save("4b", num_hidden_layers=2), name="mine", learner={"micro_batch_tokens": 4096})
    plan = planned(config, gpu="H100")
    text = text_of(plan)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.startswith("mine: ")
    assert f"{plan.shape.total:,} parameters" in text
    assert "Nothing here has been run on a GPU" in " ".join(text.split())
    for name in GPUS:
        assert f"\n {name} " in text
    assert text.endswith("This can work.\n")


def test_on_the_cpu_there_is_memory_and_no_time(save: Save) -> None:
    config = run_config(save(TINY), **SMALL, cluster={"device": "cpu"})
    plan = planned(config)
    assert (plan.gpu, plan.by_gpu) == (None, {})
    assert "No times" in text_of(plan)
    assert len(in_short(plan)) == 1


def test_json_holds_what_the_text_says(save: Save) -> None:
    config = run_config(save(TINY), **SMALL)
    plan = planned(config, gpu="L4")
    tree = json.loads(json.dumps(as_json(plan)))
    assert tree["works"] is True
    assert tree["learner"]["total"] == plan.learner.total
    assert tree["by_gpu"]["L4"]["time"]["total"] == plan.by_gpu["L4"].time.total
    assert tree["config"]["model"]["path"] == config.model.path
    assert tree["gpus"]["L4"]["source"]


# The command


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cli, "COMMANDS", ("plan",))
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    return lambda *words: cli.main(["plan", *words])


def test_a_shipped_config_with_a_config_of_the_model(plan: Any, save: Save, capsys: Any, tmp_path: Path) -> None:
    written = tmp_path / "plan.json"
    config = ["--config", "configs/dapo_qwen3_5_4b.yaml", "--model-config", save("4b", num_hidden_layers=2)]
    assert plan(*config, "--gpu", "H100", "--completion-tokens", "1500", "--json", str(written)) == 0
    out = capsys.readouterr().out
    assert "A step on 2 x H100" in out
    assert "96,000 tokens" in out  # 64 completions of 1500
    assert json.loads(written.read_text())["lengths"]["completion"] == 1500


def test_exit_code_2_when_it_cannot_work(plan: Any, save: Save, capsys: Any) -> None:
    path = save(TINY)
    assert plan("--model.path", "x/y", "--model-config", f"{path}/config.json", "--gpu", "L4", "--json", "-") == 2
    tree = json.loads(capsys.readouterr().out)
    assert tree["works"] is False
    (fatal,) = (problem["text"] for problem in tree["problems"] if problem["fatal"])
    assert "context of 512" in fatal


def test_a_model_that_cannot_be_fetched(plan: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gspo_ray.planning import policy

    def offline(*_: Any) -> None:
        raise OSError("We couldn't connect to 'https://huggingface.co'")

    monkeypatch.setattr(policy, "load_config", offline)
    assert plan("--model.path", "org/name") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "model.path 'org/name'" in error
    assert "--model-config FILE" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model-config", "nowhere"], "no file nowhere"),
        (["--completion-tokens", "0"], "--completion-tokens is 0"),
        (["--gpus", "nowhere.yaml"], "--gpus nowhere.yaml: cannot be read"),
        (["--rollout.top_k", "0"], "rollout.top_k is 0"),
    ],
)
def test_what_is_refused(plan: Any, capsys: Any, words: list[str], message: str) -> None:
    assert plan(*words) == 2
    assert message in capsys.readouterr().err


# The start of a run


def test_a_run_says_its_plan_in_a_line_or_two(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(TINY)
    monkeypatch.setattr(start, "resolve_model", lambda *_: path)
    config = run_config(path, **SMALL)
    assert len(start.plan_in_short(config)) == 1  # memory alone: nobody knows the GPU
    labelled = config.model_copy(update={"cluster": config.cluster.model_copy(update={"accelerator_type": "L4"})})
    lines = start.plan_in_short(labelled)
    assert len(lines) == 2
    assert "L4" in lines[0]
    assert "GiB" in lines[0]
    assert "a step" in lines[1]


def test_a_run_that_cannot_be_planned_goes_on_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        raise ModelError("no\nmodel")

    monkeypatch.setattr(start, "resolve_model", broken)
    assert start.plan_in_short(run_config("x")) == ["No plan of memory and time: ModelError: no model"]
