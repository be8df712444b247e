from __future__ import annotations

import pytest

from gspo_ray.algo.record import StepRecord
from gspo_ray.tracking.composite import CompositeTracker
from gspo_ray.types import RunState
from tests.unit.tracking.factories import make_group, make_step


class Recorder:
    def __init__(self):
        self.calls = []

    def log_config(self, config):
        self.calls.append("log_config")

    def log_step(self, metrics):
        self.calls.append("log_step")

    def log_rollouts(self, record):
        self.calls.append("log_rollouts")

    def log_evaluation(self, step, summary, values):
        self.calls.append("log_evaluation")

    def log_checkpoint(self, state, path):
        self.calls.append("log_checkpoint")

    def close(self, status):
        self.calls.append(f"close {status}")


class Broken(Recorder):
    error: BaseException = OSError("disk full")

    def log_step(self, metrics):
        raise self.error

    def close(self, status):
        raise self.error


def test_every_call_reaches_every_tracker_in_order():
    first, second = Recorder(), Recorder()
    both = CompositeTracker([first, second], warn=pytest.fail)
    both.log_config({})
    both.log_step(make_step(1))
    both.log_rollouts(StepRecord(step=1, groups_P=[make_group()]))
    both.log_evaluation(1, {}, {})
    both.log_checkpoint(RunState(step=1), "path")
    both.close("FINISHED")
    calls = ["log_config", "log_step", "log_rollouts", "log_evaluation", "log_checkpoint", "close FINISHED"]
    assert first.calls == second.calls == calls


def test_a_broken_tracker_is_named_once_and_stops_nobody():
    warnings: list[str] = []
    good = Recorder()
    both = CompositeTracker([Broken(), good], warn=warnings.append)
    for step in (1, 2, 3):
        both.log_step(make_step(step))
    assert len(warnings) == 1
    assert "Broken.log_step" in warnings[0]
    assert "disk full" in warnings[0]
    both.close("FAILED")
    assert "Broken failed 4 times" in warnings[1]
    assert good.calls == ["log_step"] * 3 + ["close FAILED"]


def test_an_interrupt_passes_through():
    broken = Broken()
    broken.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        CompositeTracker([broken], warn=pytest.fail).log_step(make_step(1))
