"""What crosses process borders arrives as it was sent."""

import dataclasses
import inspect
import json
import pickle
from enum import Enum
from typing import Any

import pytest

from gspo_ray import errors, types
from gspo_ray.algo import stats
from gspo_ray.algo.stats import MismatchStats, SequenceStats, UpdateStats
from gspo_ray.types import (
    Adapter,
    Completion,
    Finish,
    Group,
    LearnerState,
    Outcome,
    Problem,
    Prompt,
    RunState,
    SamplingParams,
    StepMetrics,
    Verdict,
    WeightVersion,
)

VERSION = WeightVersion(step=3, sha256="ab" * 32)
PROMPT = Prompt(problem=Problem(problem_id="p1", question="1 + 1?", answer="2", source="test"), token_ids=(1, 2, 3))
ADAPTER = Adapter(version=VERSION, payload=b"\x00\xff", peft_config="{}")
MISMATCH = MismatchStats(log_ratio=1e-5, abs_diff_sum=0.1, abs_diff_max=0.05, k3_sum=1e-6)
SEQUENCE = SequenceStats(
    row=0,
    advantage=1.0,
    num_tokens=2,
    log_ratio=1e-5,
    clipped_tokens=0,
    outside_tokens=0,
    token_log_ratio_min=0.0,
    token_log_ratio_max=2e-5,
    staleness_log_ratio=None,
    mismatch=MISMATCH,
)


def completion(step: int = 3) -> Completion:
    return Completion(
        token_ids=(4, 5),
        sampler_logprobs=(-0.5, -0.25),
        text="2",
        finish=Finish.STOP,
        version=dataclasses.replace(VERSION, step=step),
        engine_id="engine-0",
        seed=7,
    )


def verdict(reward: float) -> Verdict:
    return Verdict(reward=reward, outcome=Outcome.CORRECT if reward else Outcome.WRONG, extracted="2", seconds=0.1)


def group(*rewards: float, steps: tuple[int, ...] = (3, 3)) -> Group:
    completions = tuple(completion(step) for step in steps)
    return Group(prompt=PROMPT, completions=completions, verdicts=tuple(map(verdict, rewards)))


EXAMPLES: list[Any] = [
    PROMPT.problem,
    PROMPT,
    VERSION,
    ADAPTER,
    SamplingParams(max_tokens=8),
    completion(),
    verdict(1.0),
    group(1.0, 0.0),
    LearnerState(adapter=ADAPTER, optimizer=b"opt"),
    RunState(step=3, problems_seen=24, version=VERSION, seed=1),
    StepMetrics(step=3, values={"reward/mean": 0.5}, notes=("a note",)),
    MISMATCH,
    SEQUENCE,
    UpdateStats(
        loss=0.1,
        kl_loss=0.0,
        learning_rate=1e-4,
        grad_norm=2.0,
        updated=True,
        nonfinite=("lora_A",),
        num_sequences=8,
        sequences=(SEQUENCE,),
        tokens=100,
        computed_tokens=60,
        seconds=1.5,
    ),
]
ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.GspoRayError)]


def test_every_dataclass_has_an_example_here() -> None:
    defined = {
        kind
        for module in (types, stats)
        for _, kind in inspect.getmembers(module, dataclasses.is_dataclass)
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }
    assert defined == {type(example) for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_message_pickles_and_comes_back_equal(example: Any) -> None:
    again = pickle.loads(pickle.dumps(example))
    assert again == example
    assert type(again) is type(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_message_cannot_be_changed_and_has_no_room_for_hidden_state(example: Any) -> None:
    name = dataclasses.fields(example)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(example, name, None)


@pytest.mark.parametrize("member", [*Finish, *Outcome], ids=str)
def test_an_enum_member_pickles_to_itself_and_is_its_string(member: Enum) -> None:
    assert pickle.loads(pickle.dumps(member)) is member
    assert str(member) == member.value


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_pickles_with_its_type_and_message(kind: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(kind("rollout.max_tokens: too long")))
    assert type(again) is kind
    assert str(again) == "rollout.max_tokens: too long"


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_no_error_defines_a_constructor(kind: type[Exception]) -> None:
    assert "__init__" not in vars(kind)
    assert "__new__" not in vars(kind)


def test_user_errors_are_those_that_a_person_can_mend() -> None:
    mendable = {kind.__name__ for kind in ERRORS if issubclass(kind, errors.UserError)}
    assert mendable == {"UserError", "ConfigError", "DataError", "ModelError", "ResourceError", "CheckpointError"}


def test_a_run_state_survives_json() -> None:
    state = RunState(step=3, problems_seen=24, version=VERSION, seed=1)
    assert RunState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert set(state.to_json()) == {field.name for field in dataclasses.fields(RunState)}


def test_a_fresh_run_state_survives_json() -> None:
    assert RunState.from_json(json.loads(json.dumps(RunState().to_json()))) == RunState()


def test_the_name_of_a_version_is_its_step() -> None:
    assert VERSION.name == "policy-3"


def test_rewards_of_a_group_are_in_the_order_of_its_completions() -> None:
    assert group(1.0, 0.0).rewards_G == (1.0, 0.0)


@pytest.mark.parametrize(("rewards", "expected"), [((1.0, 0.0), False), ((0.0, 0.0), True), ((1.0, 1.0), True)])
def test_a_group_is_degenerate_when_all_rewards_are_equal(rewards: tuple[float, ...], expected: bool) -> None:
    assert group(*rewards).is_degenerate is expected


def test_the_oldest_version_of_a_group_is_that_of_the_lowest_step() -> None:
    assert group(steps=(5, 3, 4)).oldest_version.step == 3
