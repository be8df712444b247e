"""Bad input ends with exit code 2 and one line, before anything is started."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from gspo_ray.cli.main import main
from gspo_ray.models import DEMO_MODEL, resolve_model

CPU = ["--cluster.device", "cpu"]


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def started(*_: Any, **__: Any) -> None:
        pytest.fail("Ray was started")

    monkeypatch.setattr(ray, "init", started)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refusal(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """The one line on stderr of `gspo-ray WORDS`. capfd: libraries that print behind our back count too."""

    def run(*words: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert main(words) == 2
        captured = capfd.readouterr()
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        assert "Traceback" not in captured.out + captured.err
        assert all(line.startswith("Reading model") for line in captured.out.splitlines())
        assert sorted(tmp_path.rglob("*")) == before
        return captured.err

    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: command"),
        (["evaluate"], "invalid choice: 'evaluate'"),
        (["train", "--config"], "--config: expected one argument"),
        (["train", "--config", "no.yaml"], "config file no.yaml does not exist"),
        (["train", "extra"], "unexpected argument 'extra'"),
        (["train", "--seed", "1", "2"], "unexpected argument '2'"),
        (["train", "--seed"], "--seed needs a value"),
        (["train", "--seed", "--dry-run"], "--seed needs a value"),
        (["train", "--dryrun"], "did you mean --dry-run?"),
        (["train", "--conf", "demo.yaml"], "did you mean --config?"),
        (["train", "--rollout.max_token", "5"], "did you mean --rollout.max_tokens?"),
        (["train", "--rollout.group_size", "1"], "rollout.group_size: Input should be greater than or equal to 2"),
        (["train", "--algo.eps_low", "0"], "algo.eps_low: Input should be greater than 0"),
        (["train", "--algo.eps_high=0", "--dry-run"], "algo.eps_high: Input should be greater than 0"),
        (["train", "--model.lora.rank", "1000"], "512"),
        (["train", "--resume"], "no run named 'gspo' under"),
        (["train", "--resume", "nowhere"], "nowhere has no complete checkpoint"),
        (["train", "--model.path", "/no/such/folder"], "model.path: no folder /no/such/folder"),
        (["train", "--model.path", "smollm"], "Did you mean 'smollm2-135m'?"),
        (["train", "--data.source", "gsm8k"], "set data.path"),
        (["model"], "required: name"),
        (["model", "nosuch"], "model.path 'nosuch' is no known model"),
        (["model", DEMO_MODEL, "extra"], "unexpected argument 'extra'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_command_line_is_one_line(refusal: Callable[..., str], words: list[str], says: str) -> None:
    assert says in refusal(*words)


def test_a_config_file_that_is_no_yaml_is_one_line(refusal: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("rollout:\n  max_tokens: [1\nseed: 3\n")
    assert "run.yaml is not valid YAML: line 3: " in refusal("train", "--config", "run.yaml")


def test_rows_longer_than_the_context_of_the_model_are_refused(refusal: Callable[..., str]) -> None:
    message = refusal("train", "--data.max_prompt_tokens", "4097", "--rollout.max_tokens", "4096")
    for part in ("data.max_prompt_tokens=4097", "rollout.max_tokens=4096", "8193", "context of 8192", "Lower one"):
        assert part in message


GOOD = {"question": "What is 1 + 1?", "answer": 2}


@pytest.mark.parametrize(
    ("lines", "words", "says"),
    [
        ([json.dumps(GOOD), '{"question": "cut'], [], ["train.jsonl:2", "not valid JSON"]),
        ([json.dumps({"problem": "1 + 1?", "answer": 2})], [], ["train.jsonl:1", "no column 'question'", "problem"]),
        ([], [], ["train.jsonl has no rows"]),
        (["", ""], [], ["train.jsonl has no rows"]),
        ([json.dumps(GOOD)], ["--data.answer_column", "gold"], ["train.jsonl:1", "no column 'gold'", "answer"]),
        ([json.dumps(GOOD)], ["--data.max_prompt_tokens", "5"], ["no prompt is left", "raise data.max_prompt_tokens"]),
        ([json.dumps(GOOD)], ["--data.source", "gsm8k"], ["train.jsonl:1", "####"]),
    ],
)
def test_data_that_cannot_be_trained_on_is_one_line(
    refusal: Callable[..., str], tmp_path: Path, lines: list[str], words: list[str], says: list[str]
) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    message = refusal("train", *CPU, "--data.source", "jsonl", "--data.path", "train.jsonl", *words)
    for part in says:
        assert part in message


def test_a_missing_data_file_is_one_line(refusal: Callable[..., str]) -> None:
    message = refusal("train", "--data.source", "jsonl", "--data.path", "no.jsonl")
    assert "no.jsonl: no such file. Set data.path" in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", '{"added_tokens": []}'),
        ("tokenizer.json", "{"),
        ("config.json", "{"),
    ],
)
def test_a_model_folder_with_a_damaged_file_is_one_line(
    refusal: Callable[..., str], tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / "model").mkdir()
    for file in Path(resolve_model(DEMO_MODEL)).iterdir():
        (tmp_path / "model" / file.name).symlink_to(file)
    (tmp_path / "model" / name).unlink()
    (tmp_path / "model" / name).write_text(content)
    assert "model" in refusal("train", "--model.path", "./model", "--rollout.max_tokens", "64")


def test_a_dry_run_prints_the_resolved_config_and_nothing_else(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "run.yaml").write_text("steps: 7\nrollout: {max_tokens: 32}\n")
    assert main(["train", "--config", "run.yaml", "--dry-run", "--rollout.max_tokens", "64", "--seed=3"]) == 0
    captured = capfd.readouterr()
    tree = yaml.safe_load(captured.out)
    assert (tree["steps"], tree["seed"], tree["rollout"]["max_tokens"], tree["rollout"]["group_size"]) == (7, 3, 64, 8)
    assert captured.err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_the_demo_model_is_printed_as_a_folder(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["model", DEMO_MODEL]) == 0
    captured = capfd.readouterr()
    assert (Path(captured.out.strip()) / "config.json").is_file()
    assert captured.err == ""


def test_good_input_gets_as_far_as_the_cluster_with_a_clean_console(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class ClusterError(Exception):
        pass

    def init(**_: Any) -> None:
        raise ClusterError

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ClusterError):
        main(["train", *CPU, "--rollout.max_tokens", "64", "--data.max_problems", "4"])
    captured = capfd.readouterr()
    reading, plan, starting = captured.out.splitlines()
    assert reading == "Reading model smollm2-135m and data additions ..."
    assert plan.startswith("Plan: learner ")
    assert starting == "Starting a local Ray cluster ..."
    assert captured.err == ""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"]], ids=" ".join)
def test_help_and_version_exit_with_0(capfd: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    assert "gspo-ray" in capfd.readouterr().out
