"""What a learner is between two steps: state, versions, learning rate, seed."""

import pytest
import torch

from gspo_ray.types import LearnerState
from tests.unit.factories import make_batch
from tests.unit.learner.helpers import (
    distance,
    random_batch,
    random_group,
)


def test_after_load_state_the_next_step_is_that_of_the_uninterrupted_run(make_learner):
    # Defaults of AdamW here: the moments and the step count must come back, or the third update differs.
    settings = {"learning_rate": 1e-2, "adam_eps": 1e-8, "max_grad_norm": 1.0, "weight_decay": 0.1}
    whole, stopped = make_learner(**settings), make_learner(**settings)
    for step in (1, 2):
        whole.step(random_batch(), step=step)
        stopped.step(random_batch(), step=step)
    state = stopped.export_state()
    resumed = make_learner(seed=99, **settings)
    resumed.load_state(state)
    assert resumed.export_adapter() == state.adapter  # bytes, sha and version 2
    for step in (3, 4):
        whole.step(random_batch(), step=step)
        resumed.step(random_batch(), step=step)
        assert resumed.export_adapter() == whole.export_adapter()
    assert resumed.export_adapter().version.step == 4


def test_a_learning_rate_changed_at_resume_is_used(make_learner):
    before = make_learner(learning_rate=1e-2)
    before.step(random_batch(), step=1)
    state = before.export_state()
    slower = make_learner(learning_rate=1e-3)
    slower.load_state(state)
    before.step(random_batch(), step=2)
    slower.step(random_batch(), step=2)
    # AdamW's step is linear in the learning rate (no weight decay): a tenth of the way
    moved, tenth = distance(state.adapter, before.export_adapter()), distance(state.adapter, slower.export_adapter())
    assert tenth == pytest.approx(moved / 10, rel=1e-2)


def test_the_linear_schedule_falls_from_the_full_rate_to_a_share_of_one_step(make_learner):
    # lr (1 - (step - 1) / 4) for steps 1 to 4; the step decides, so a resumed run is on the same line
    learner = make_learner(lr_schedule="linear", learning_rate=0.8, total_steps=4)
    rates = [learner.step(random_batch(1), step=step).learning_rate for step in (1, 2, 3, 4)]
    assert rates == pytest.approx([0.8, 0.6, 0.4, 0.2])
    resumed = make_learner(lr_schedule="linear", learning_rate=0.8, total_steps=4)
    resumed.load_state(learner.export_state())
    assert resumed.step(random_batch(1), step=3).learning_rate == pytest.approx(0.4)


def test_the_rate_of_the_schedule_is_the_one_applied(make_learner):
    full, half = make_learner(), make_learner(lr_schedule="linear", total_steps=2)
    start = full.export_adapter()
    for learner in (full, half):
        learner.step(random_batch(), step=2)  # half: 1 - (2 - 1) / 2
    moved, halved = distance(start, full.export_adapter()), distance(start, half.export_adapter())
    assert halved == pytest.approx(moved / 2, rel=1e-5)


def test_the_adapter_is_a_function_of_the_seed_and_of_nothing_else(make_learner):
    torch.manual_seed(1)
    one = make_learner(seed=0)
    torch.manual_seed(2)
    drawn = torch.rand(1)
    torch.manual_seed(2)
    same = make_learner(seed=0)
    assert torch.equal(torch.rand(1), drawn)  # and the global state is left as it was
    assert same.export_adapter().version == one.export_adapter().version
    assert make_learner(seed=1).export_adapter().version.sha256 != one.export_adapter().version.sha256
    assert one.export_adapter().version.step == 0


def test_the_version_is_the_step_of_the_last_update(make_learner):
    learner = make_learner()
    learner.step(random_batch(), step=21)  # the first after a resume at 20
    assert learner.export_adapter().version.step == 21
    learner.step(make_batch([random_group(1, (1.0,) * 3)]), step=22)
    assert learner.export_adapter().version.step == 21
    assert learner.export_adapter().version.name == "policy-21"


def test_learner_state_holds_plain_bytes(make_learner):
    state = make_learner().export_state()
    assert isinstance(state, LearnerState)
    assert isinstance(state.optimizer, bytes)
    assert isinstance(state.adapter.payload, bytes)
