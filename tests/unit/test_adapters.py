"""An adapter is found wherever it lies, and refused when it cannot be served."""

import hashlib
import json
from dataclasses import replace

import pytest

from gspo_ray.adapters import adapter_rank, read_adapter
from gspo_ray.checkpoint import save_checkpoint
from gspo_ray.errors import CheckpointError
from gspo_ray.types import Adapter, LearnerState, RunState, WeightVersion

PEFT = json.dumps({"peft_type": "LORA", "r": 12, "lora_alpha": 24})


def make_adapter(config=PEFT):
    digest = hashlib.sha256(b"weights").hexdigest()
    return Adapter(version=WeightVersion(step=3, sha256=digest), payload=b"weights", peft_config=config)


@pytest.fixture
def run_folder(tmp_path):

    for step in (3, 6):
        payload = f"weights of {step}".encode()
        version = WeightVersion(step=step, sha256=hashlib.sha256(payload).hexdigest())
        adapter = replace(make_adapter(), version=version, payload=payload)
        state = RunState(step=step, version=version)
        save_checkpoint(tmp_path / "run" / "checkpoints", state, LearnerState(adapter=adapter, optimizer=b"o"), keep=5)
    return tmp_path / "run"


def test_a_run_folder_means_its_newest_checkpoint(run_folder):
    adapter, step = read_adapter(run_folder)
    assert (adapter.payload, step) == (b"weights of 6", 6)


def test_a_checkpoint_and_a_peft_directory_are_taken_as_they_are(run_folder):
    checkpoint = run_folder / "checkpoints" / "step-000003"
    adapter, step = read_adapter(checkpoint)
    assert (adapter.payload, step) == (b"weights of 3", 3)
    plain, step = read_adapter(checkpoint / "adapter")
    assert (plain.payload, plain.version.sha256, step) == (adapter.payload, adapter.version.sha256, None)


def test_a_folder_without_an_adapter_says_what_is_wanted(tmp_path):
    with pytest.raises(CheckpointError, match="name a run folder, a checkpoint of one, or a PEFT directory"):
        read_adapter(tmp_path)


def test_a_damaged_checkpoint_is_not_evaluated(run_folder):
    (run_folder / "checkpoints" / "step-000006" / "adapter" / "adapter_model.safetensors").write_bytes(b"other")
    with pytest.raises(CheckpointError, match=r"sha256|damaged"):
        read_adapter(run_folder)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "not that of a LoRA adapter"),
        ('{"peft_type": "PREFIX"}', "not that of a LoRA adapter"),
        ('{"r": 8, "use_dora": true}', "DoRA"),
        ('{"r": 8, "modules_to_save": ["lm_head"]}', "modules_to_save"),
    ],
)
def test_what_the_engine_cannot_serve_is_refused_before_it_starts(config, says):
    with pytest.raises(CheckpointError, match=says):
        adapter_rank(make_adapter(config))


def test_the_rank_is_the_largest_of_all_layers():
    assert adapter_rank(make_adapter()) == 12
    assert adapter_rank(make_adapter('{"r": 8, "rank_pattern": {"q_proj": 32}}')) == 32
