"""One folder a run, and the right one when a run goes on."""

import time
from pathlib import Path

import pytest

from gspo_ray.checkpoint import save_checkpoint
from gspo_ray.config import RunConfig
from gspo_ray.config_io import load_config
from gspo_ray.errors import CheckpointError, ConfigError
from gspo_ray.run_dir import RunDir, create_run_dir, find_run_dir
from gspo_ray.types import Adapter, LearnerState, RunState, WeightVersion

STAMP = "20260101-120000"


def config(storage: Path, *words: str, name: str = "demo") -> RunConfig:
    return load_config(None, ["--storage_path", str(storage), "--name", name, *words])


def run(storage: Path, folder: str, *words: str, complete: bool = True) -> Path:
    """A run folder under a given name, as an earlier run left it."""
    path = storage / folder
    (path / "checkpoints").mkdir(parents=True)
    RunDir(path).write_config(config(storage, *words))
    if complete:
        version = WeightVersion(step=1, sha256="")
        learner = LearnerState(adapter=Adapter(version=version, payload=b"", peft_config=""), optimizer=b"")
        save_checkpoint(path / "checkpoints", RunState(step=1, version=version), learner, keep=1)
    return path


def test_a_new_run_has_its_config_and_an_empty_folder_for_checkpoints(tmp_path: Path) -> None:
    wanted = config(tmp_path / "deep" / "runs", "--steps", "3")
    run_dir = create_run_dir(wanted)
    assert run_dir.path.parent == tmp_path / "deep" / "runs"
    assert run_dir.path.name.startswith("demo-")
    assert load_config(run_dir.path / "config.yaml") == wanted
    assert list(run_dir.checkpoints.iterdir()) == []


def test_runs_started_in_the_same_second_get_different_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda _: STAMP)
    paths = [create_run_dir(config(tmp_path)).path.name for _ in range(3)]
    assert paths == [f"demo-{STAMP}", f"demo-{STAMP}-1", f"demo-{STAMP}-2"]


def test_a_storage_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"storage_path .*/file cannot be written: Not a directory"):
        create_run_dir(config(tmp_path / "file"))


def test_a_new_run_is_found_as_the_latest(tmp_path: Path) -> None:
    path = create_run_dir(config(tmp_path)).path
    run(tmp_path, "other")
    (path / "checkpoints").rmdir()
    (tmp_path / "other" / "checkpoints").rename(path / "checkpoints")
    assert find_run_dir(config(tmp_path), "latest").path == path


def test_the_latest_is_the_newest_run_with_a_complete_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, "demo-20260101-120000")
    newest = run(tmp_path, "demo-20260102-120000")
    run(tmp_path, "demo-20260103-120000", complete=False)
    assert find_run_dir(config(tmp_path), "latest").path == newest


def test_the_tenth_run_of_a_second_is_newer_than_the_ninth(tmp_path: Path) -> None:
    for folder in (f"demo-{STAMP}", f"demo-{STAMP}-9", f"demo-{STAMP}-10"):
        run(tmp_path, folder)
    assert find_run_dir(config(tmp_path), "latest").path.name == f"demo-{STAMP}-10"


@pytest.mark.parametrize(
    "other", [f"demo-s1-{STAMP}", "demo-zz", f"demo-{STAMP}-{STAMP}", f"demo-{STAMP}.bak", f"Demo-{STAMP}"]
)
def test_a_run_whose_name_only_starts_alike_is_not_the_latest(tmp_path: Path, other: str) -> None:
    run(tmp_path, other)
    with pytest.raises(CheckpointError, match=f"no run named 'demo' under {tmp_path} has a complete checkpoint"):
        find_run_dir(config(tmp_path), "latest")


def test_a_dot_in_a_name_is_a_dot(tmp_path: Path) -> None:
    run(tmp_path, f"qwen3x5-{STAMP}")
    wanted = run(tmp_path, "qwen3.5-20250101-000000")
    assert find_run_dir(config(tmp_path, name="qwen3.5"), "latest").path == wanted


def test_without_any_run_there_is_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no run named 'demo' under"):
        find_run_dir(config(tmp_path / "missing"), "latest")


def test_a_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run(tmp_path, "anything")
    run(tmp_path, f"demo-{STAMP}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for where in (str(path), "anything", "~/anything"):
        assert find_run_dir(config(tmp_path), where).path == path


@pytest.mark.parametrize("where", ["missing", "empty"])
def test_a_named_folder_without_a_checkpoint_is_refused(tmp_path: Path, where: str) -> None:
    run(tmp_path, "empty", complete=False)
    with pytest.raises(CheckpointError, match=f"{where} has no complete checkpoint"):
        find_run_dir(config(tmp_path), str(tmp_path / where))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seed", "1"], "seed was 0 and is 1"),
        (["--model.lora.rank", "8"], "model.lora.rank was 16 and is 8"),
        (["--model.dtype", "float32"], "model.dtype was 'bfloat16' and is 'float32'"),
        (["--data.problems_per_step", "4"], "data.problems_per_step was 8 and is 4"),
        (["--data.prompt.examples", "[[a, b]]"], "data.prompt.examples was [] and is [['a', 'b']]"),
        (["--rollout.group_size", "4"], "rollout.group_size was 8 and is 4"),
        (["--rollout.temperature", "0.7"], "rollout.temperature was 1.0 and is 0.7"),
        (["--algo.num_minibatches", "2"], "algo.num_minibatches was 1 and is 2"),
    ],
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "latest"])
def test_another_experiment_does_not_go_on_in_this_folder(
    tmp_path: Path, words: list[str], says: str, named: bool
) -> None:
    path = run(tmp_path, f"demo-{STAMP}")
    with pytest.raises(CheckpointError) as caught:
        find_run_dir(config(tmp_path, *words), str(path) if named else "latest")
    for part in (f"cannot resume {path}", says, "Start a new run"):
        assert part in str(caught.value)


def test_all_changed_keys_are_told_at_once(tmp_path: Path) -> None:
    run(tmp_path, f"demo-{STAMP}")
    with pytest.raises(CheckpointError, match=r"seed was 0 and is 1, model.lora.rank was 16 and is 8"):
        find_run_dir(config(tmp_path, "--seed", "1", "--model.lora.rank", "8"), "latest")


def test_length_speed_and_place_of_a_run_may_change(tmp_path: Path) -> None:
    path = run(tmp_path, f"demo-{STAMP}")
    words = ["--steps", "200", "--learner.learning_rate", "1e-6", "--rollout.num_engines", "2", "--checkpoint.every=1"]
    assert find_run_dir(config(tmp_path, *words, "--cluster.device", "cpu"), "latest").path == path


def test_the_mlflow_run_is_remembered(tmp_path: Path) -> None:
    run_dir = create_run_dir(config(tmp_path))
    assert run_dir.mlflow_run_id is None
    run_dir.remember_mlflow_run("abc")
    assert RunDir(run_dir.path).mlflow_run_id == "abc"
