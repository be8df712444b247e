"""A head without CPUs whose autoscaler starts nodes on this machine: they come for a run, and go after it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gspo_ray.models import resolve_model
from tests.e2e.conftest import ROOT, Cli
from tests.e2e.ray_nodes import environment, free_ports, ray_node, short_folder, store_address

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HEAD_ID = "f" * 51 + "00000"  # what Ray's provider of made-up nodes calls its head
GROUPS = (
    "--cluster.learner_labels",
    "{gspo-ray/group: learner}",
    "--cluster.engine_labels",
    "{gspo-ray/group: sampler}",
)
CPUS = (
    "--cluster.cpus_per_engine",
    "1",
    "--cluster.cpus_per_learner",
    "0.5",
    "--cluster.cpus_per_reward_worker",
    "0.5",
)
COMMANDS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")


def node_type(cpus: int, most: int, **labels: str) -> dict:
    return {
        "resources": {"CPU": cpus, "object_store_memory": 200_000_000},
        "labels": labels,
        "node_config": {},
        "min_workers": 0,
        "max_workers": most,
    }


def autoscaling_config(address: str) -> dict:
    return {
        "cluster_name": "autoscale",
        "max_workers": 4,
        "idle_timeout_minutes": 0.1,
        "provider": {
            # Ray's provider of made-up nodes by its path: the defaults of its short name are not in the wheel.
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "gcs_address": address,
            "launch_multiple": True,
            "head_node_id": HEAD_ID,
            "disable_node_updaters": True,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "learner": node_type(1, 1, **{"gspo-ray/group": "learner"}),
            "sampler": node_type(1, 2, **{"gspo-ray/group": "sampler"}),
        },
        **{name: [] for name in ("cluster_synced_files", *(f"{part}_commands" for part in COMMANDS))},
    }


def save_small_model(folder: Path) -> str:
    """The demo model's tokenizer and kind, in two narrow layers."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = resolve_model("smollm2-135m")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AutoConfig.from_pretrained(source, **sizes, num_key_value_heads=1)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def cluster():
    """(address, folder)"""
    with short_folder() as folder:
        port, dashboard = free_ports(2)
        file = folder / "autoscaling.json"
        address = store_address(port)
        file.write_text(json.dumps(autoscaling_config(address)))
        fakes = {
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
            "RAY_NODE_TYPE_NAME": "ray.head.default",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        }
        home = folder / "h"
        flags = ("--num-cpus=0", f"--autoscaling-config={file}")
        with ray_node(home, head=(port, dashboard), flags=flags, env=environment(home, **fakes)):
            yield address, folder


def alive_nodes(address: str, home: Path) -> int:
    code = "import ray; ray.init(log_to_driver=False, logging_level=40); print(sum(n['Alive'] for n in ray.nodes()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(home, RAY_ADDRESS=address),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def test_nodes_come_for_a_run_and_go_after_it(cluster):
    address, folder = cluster
    flags = ["--model.path", save_small_model(folder / "model"), "--storage_path", str(folder / "runs")]
    flags += ["--steps", "2", "--rollout.num_engines", "2", "--rollout.probe_tolerance", "1000"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.autoscaled_run", *flags, *GROUPS, *CPUS],
        env=environment(folder / "h", RAY_ADDRESS=address),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    waiting = [line for line in done.stdout.splitlines() if line.startswith("Waiting for the cluster")]
    assert "the run asks for 3 CPU, 0 GPU (2 engine(s), 1 learner(s), 1 reward worker(s))" in waiting[0]
    assert "but the cluster has 0 CPU, 0 GPU" in waiting[0]
    assert any("The autoscaler is starting" in line and "sampler" in line for line in waiting)
    (run_dir,) = (folder / "runs").glob("demo-*")
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert any(row["learner/updates"] for row in rows)
    deadline = time.monotonic() + 60
    while alive_nodes(address, folder / "h") > 1:  # the head stays
        assert time.monotonic() < deadline, "idle nodes stay"


def test_a_run_beyond_the_maximum_is_refused_at_once_with_the_numbers(cluster, tmp_path):
    address, folder = cluster
    cli = Cli(tmp_path / "output.log", environment(folder / "h", RAY_ADDRESS=address))
    flags = ("--config", "configs/demo.yaml", "--model.path", save_small_model(tmp_path / "model"))
    started = time.monotonic()
    code = cli.run("train", *flags, *GROUPS, *CPUS, "--rollout.num_engines", "3", "--storage_path", str(tmp_path / "r"))
    *_, last = cli.log.read_text().splitlines()
    assert code == 2
    assert "the run asks for 4 CPU, 0 GPU (3 engine(s)" in last
    assert "cannot make room for 3 x engine (1 CPU; gspo-ray/group: sampler)" in last
    assert not (tmp_path / "r").exists()
    assert time.monotonic() - started < 90  # most of it is the import of what checks the config
