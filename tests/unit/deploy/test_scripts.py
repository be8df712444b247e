"""The shell scripts of cluster/, with stand-ins for the programs that they call."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gspo_ray.config_io import load_config
from tests.unit.deploy.files import CLUSTER, ROOT

SCRIPTS = sorted(CLUSTER.rglob("*.sh"))
GSPO_RAY = """#!/usr/bin/env bash
printf '%s\\0' "$@" >> "$CALLS"; printf '\\n' >> "$CALLS"
if [ "$1" = prepare ]; then mkdir -p "$4" && touch "$4/train.jsonl"; fi
"""
KUBECTL = """#!/usr/bin/env bash
if [ "$3" = get ]; then grep -qx "$5" "$CALLS.there"; exit; fi
{ printf '%s ' "$@"; cat; } >> "$CALLS"
"""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_bash_reads_it_and_a_fault_stops_it(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert os.access(path, os.X_OK)


def train(tmp_path: Path, *words: str) -> list[list[str]]:
    """Calls of gspo-ray by cluster/train.sh with `tmp_path`/runs as storage."""
    calls = stand_in(tmp_path, "gspo-ray", GSPO_RAY)
    script = ROOT / "cluster/train.sh"
    subprocess.run(["bash", script, *words], check=True, cwd="/", env=environment(tmp_path, calls))
    return [line.rstrip("\0").split("\0") for line in calls.read_text(encoding="utf-8").splitlines()]


def test_the_first_try_prepares_the_data_and_starts_a_run(tmp_path: Path) -> None:
    prepare, run = train(tmp_path, "--steps", "3")
    storage = tmp_path / "runs"
    assert prepare == ["prepare", "dapo-math-17k", "--out", f"{storage}/data/dapo"]
    assert run[:3] == ["train", "--config", "configs/dapo_qwen3_5_4b.yaml"]
    assert "--resume" not in run
    config = load_config(ROOT / run[2], run[3:])
    assert (config.steps, config.storage_path, config.data.source) == (3, str(storage), "jsonl")
    assert config.data.path == f"{storage}/data/dapo/train.jsonl"
    assert config.cluster.learner_labels == {"gspo-ray/group": "learner"}
    assert config.cluster.engine_labels == {"gspo-ray/group": "sampler"}
    assert config.cluster.reward_labels == {"gspo-ray/group": "reward"}


def test_another_try_goes_on_from_a_complete_checkpoint(tmp_path: Path) -> None:
    assert train(tmp_path)[-1][-1] != "--resume"
    run = tmp_path / "runs/dapo-qwen3.5-4b-20260102-030405/checkpoints/step-00005"
    run.mkdir(parents=True)
    assert train(tmp_path)[-1][-1] != "--resume"  # it was never completed
    (run / "COMPLETE").touch()
    calls = train(tmp_path)
    assert [call[0] for call in calls] == ["prepare", "train", "train", "train"]
    assert calls[-1][-1] == "--resume"


def test_a_run_of_a_longer_name_is_not_taken_for_this_one(tmp_path: Path) -> None:
    other = tmp_path / "runs/dapo-qwen3.5-4b-seed2-20260102-030405/checkpoints/step-00005"
    other.mkdir(parents=True)
    (other / "COMPLETE").touch()
    assert "--resume" not in train(tmp_path)[-1]


def test_secrets_are_made_once_and_never_stand_on_a_command_line(tmp_path: Path) -> None:
    calls = stand_in(tmp_path, "kubectl", KUBECTL)
    (tmp_path / "calls.there").write_text("gspo-ray-mlflow\n", encoding="utf-8")
    env = environment(tmp_path, calls) | {"HF_TOKEN": "hub-word"}
    env.pop("AWS_SECRET_ACCESS_KEY", None)
    done = subprocess.run(["bash", CLUSTER / "kuberay/secrets.sh"], check=True, env=env, capture_output=True, text=True)
    create = "-n gspo-ray create secret generic {} --from-env-file=/dev/stdin "
    token, hub = calls.read_text(encoding="utf-8").splitlines()
    assert token.startswith(create.format("gspo-ray-token") + "auth_token=")
    assert len(token.rpartition("=")[2]) == 64
    assert hub == create.format("gspo-ray-hub") + "HF_TOKEN=hub-word"
    assert done.stdout == "secret/gspo-ray-mlflow is there already\n"


def stand_in(tmp_path: Path, name: str, text: str) -> Path:
    program = tmp_path / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return tmp_path / "calls"


def environment(tmp_path: Path, calls: Path) -> dict[str, str]:
    assert shutil.which("bash")
    mine = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLS": str(calls)}
    return os.environ | mine | {"GSPO_RAY_STORAGE": str(tmp_path / "runs")}
