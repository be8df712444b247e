from __future__ import annotations

import struct

from gspo_ray.tracking.local import LocalTracker
from gspo_ray.tracking.plots import plot_rewards
from gspo_ray.types import StepMetrics
from tests.unit.tracking.factories import make_step


def png_size(path):
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    return struct.unpack(">II", header[16:24])


def test_the_figure_has_the_promised_size(tmp_path):
    tracker = LocalTracker(tmp_path)
    for step in range(1, 4):
        tracker.log_step(make_step(step, 0.3 * step))
    tracker.log_step(StepMetrics(step=4, values={"reward/mean": float("nan")}))
    plot_rewards(tracker.metrics_path, tmp_path / "rewards.png", "a run")
    assert png_size(tmp_path / "rewards.png") == (1200, 700)


def test_a_run_without_a_step_still_has_a_figure(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    plot_rewards(tmp_path / "metrics.jsonl", tmp_path / "rewards.png", "a run")
    assert png_size(tmp_path / "rewards.png") == (1200, 700)
