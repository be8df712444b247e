import math
from dataclasses import replace

import pytest

from gspo_ray.config import RewardConfig
from gspo_ray.doctor.finding import Level
from gspo_ray.doctor.selftest import ANSWERS, Tried, check_verifier, judged_answers, judged_engine
from gspo_ray.types import Outcome, Verdict

TRIED = Tried(learner=[-1.0, -2.0], engine=[-1.0, -2.00001], engine_base=[-3.0, -1.0], sampled=[-0.5])


def verdicts(**changes: Outcome) -> list[Verdict]:
    outcomes = [changes.get(wanted, Outcome(wanted)) for _, _, wanted in ANSWERS]
    return [Verdict(reward=0.0, outcome=outcome, extracted=None, seconds=0.1) for outcome in outcomes]


def test_a_verifier_that_judges_as_it_should_passes() -> None:
    assert judged_answers(verdicts()).level is Level.PASS


@pytest.mark.parametrize(
    "changes", [{"correct": Outcome.WRONG}, {"timeout": Outcome.ERROR}, {"wrong": Outcome.CORRECT}]
)
def test_one_wrong_verdict_fails(changes: dict[str, Outcome]) -> None:
    assert judged_answers(verdicts(**changes)).level is Level.FAIL


def test_the_installed_verifier_passes() -> None:
    finding = check_verifier(RewardConfig())
    assert finding.level is Level.PASS, finding.found


@pytest.mark.parametrize(
    ("changes", "level", "says"),
    [
        ({}, Level.PASS, "agrees with the learner"),
        ({"engine": [-1.0, -2.1]}, Level.FAIL, "disagree by 0.05 a token"),  # (0 + 0.1) / 2
        ({"engine": [math.nan, -2.0]}, Level.FAIL, "disagree"),
        ({"engine": [-3.0, -1.0]}, Level.FAIL, "no effect"),  # samples from the base model
        ({"learner": [-3.0, -1.0], "engine": [-3.0, -1.0]}, Level.FAIL, "no effect"),
        ({"sampled": [0.3]}, Level.FAIL, "no log-probs"),
        ({"sampled": []}, Level.FAIL, "no log-probs"),
    ],
)
def test_an_engine_must_apply_the_adapter_as_the_learner_does(
    changes: dict[str, list[float]], level: Level, says: str
) -> None:
    finding = judged_engine(replace(TRIED, **changes), tolerance=1e-3)
    assert finding.level is level
    assert says in finding.found
