"""Two Ray nodes that share no folder: each has its own copy of the model, the run's folder is the driver's."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from gspo_ray.models import resolve_model
from tests.e2e.conftest import Cli
from tests.e2e.ray_nodes import environment, free_ports, ray_node, short_folder, store_address

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

# Enough for groups that differ: an adapter has to go from the learner's node to the engine's.
SHORT = ("--steps", "2", "--data.problems_per_step", "4", "--rollout.max_tokens", "24", "--checkpoint.every", "1")
APART = (
    "--cluster.learner_labels",
    "{gspo-ray/group: learner}",
    "--cluster.engine_labels",
    "{gspo-ray/group: sampler}",
)


def copy_model(target: Path) -> None:
    source = Path(resolve_model("smollm2-135m"))
    try:
        shutil.copytree(source, target, copy_function=os.link)
    except OSError:  # another file system
        shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """(exit code, output, folder with the homes of driver, learner node and sampler node)"""
    with short_folder() as folder:
        driver, learner, sampler = homes = [folder / name for name in ("d", "l", "s")]
        for home in homes:
            home.mkdir()
            copy_model(home / "base")
        # The driver reads tokenizer and config; whoever loaded its weights would fail.
        (driver / "base" / "model.safetensors").unlink()
        (driver / "base" / "model.safetensors").write_bytes(b"no weights")
        port, dashboard = free_ports(2)
        address = store_address(port)
        with (
            ray_node(learner, head=(port, dashboard), flags=("--num-cpus=2", "--labels=gspo-ray/group=learner")),
            ray_node(sampler, join=address, flags=("--num-cpus=2", "--labels=gspo-ray/group=sampler")),
        ):
            # The engine names the folder it loads at this level.
            env = environment(driver, RAY_ADDRESS=address, VLLM_LOGGING_LEVEL="INFO")
            cli = Cli(folder / "output.log", env)
            flags = ("--config", "configs/demo.yaml", "--model.path", "~/base", "--storage_path", "~/runs")
            code = cli.run("train", *flags, *SHORT, *APART, timeout_s=600)
        yield code, cli.log.read_text(), folder


def test_the_run_trains(outcome):
    code, output, folder = outcome
    assert code == 0, output[-3000:]
    (run_dir,) = (folder / "d" / "runs").glob("demo-*")
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert any(row["learner/updates"] for row in rows)
    assert (run_dir / "checkpoints" / "step-000002" / "adapter" / "adapter_model.safetensors").exists()


def test_each_node_used_its_own_disk(outcome):
    """The engine's log names the folder it loaded; the adapter's way is checked by the run itself (sha256, probe)."""
    _, _, folder = outcome
    logs = "".join(path.read_text(errors="replace") for path in (folder / "s" / "r").rglob("worker-*.[oe]*[tr]"))
    assert set(re.findall(r"model='([^']+)'", logs)) == {str(folder / "s" / "base")}
    left = {path.name for home in ("l", "s") for path in (folder / home).iterdir()}
    assert left.isdisjoint({"runs"})
    assert not list((folder / "l").rglob("adapter_model.safetensors"))
    assert not list((folder / "s").rglob("adapter_model.safetensors"))
