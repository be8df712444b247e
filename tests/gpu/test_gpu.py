"""What needs CUDA: skipped without it. No GPU has run these yet."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
needs_one = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a CUDA device")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices: engine and learner")


@needs_one
def test_the_learner_scores_on_cuda_as_on_cpu():
    from gspo_ray.config import AlgoConfig, LearnerConfig, ModelConfig
    from gspo_ray.learner.learner import LoraLearner
    from gspo_ray.models import resolve_model

    def score(device):
        learner = LoraLearner(
            resolve_model("smollm2-135m"),
            model=ModelConfig(dtype="float32"),
            algo=AlgoConfig(),
            learner=LearnerConfig(),
            temperature=1.0,
            max_tokens=64,
            total_steps=1,
            device=device,
            seed=0,
        )
        return learner.score(list(range(3, 40)), num_prompt=10)

    assert score("cuda") == pytest.approx(score("cpu"), abs=1e-3)


@needs_two
def test_two_steps_with_engine_and_learner_on_separate_gpus(tmp_path):
    words = ["--config", "configs/demo.yaml", "--steps", "2", "--storage_path", str(tmp_path)]
    gpu = ["--cluster.device", "cuda", "--model.dtype", "bfloat16", "--rollout.engine.block_size", "16"]
    command = [sys.executable, "-m", "gspo_ray.cli", "train", *words, *gpu]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    (metrics,) = tmp_path.glob("demo-*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["sync/probe_gap"] < row["sync/probe_tolerance"] for row in rows)
