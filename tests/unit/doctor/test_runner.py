import os
from collections.abc import Iterator

import psutil
import pytest

from gspo_ray.config import RunConfig
from gspo_ray.doctor import runner
from gspo_ray.doctor.checks import Place, checks
from gspo_ray.doctor.finding import Finding, Level
from tests.unit.doctor.broken_checks import broken_checks

CONFIG = RunConfig.model_validate({"cluster": {"device": "cpu"}})


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Finding]:
    monkeypatch.setattr(runner, "checks", broken_checks)
    return runner.examine(CONFIG, Place(), quick=True, work="tests.unit.doctor.broken_checks")


def test_a_check_that_hangs_dies_or_raises_costs_its_own_finding_alone(broken: Iterator[Finding]) -> None:
    findings = {finding.check: finding for finding in broken}
    assert list(findings) == [check.name for check in broken_checks()]
    assert [name for name, finding in findings.items() if finding.level is Level.PASS] == [
        "first",
        "after the hang",
        "last",
    ]
    for name, says in {
        "hangs": "no answer within 1 s",
        "dies": "was killed by SIGKILL: out of memory",
        "leaves": "ended with code 3",
        "stumbles": "the check itself failed: ValueError: two lines",
        "refuses": "no such model. Name another.",
    }.items():
        assert says in findings[name].found
        assert "Traceback" not in findings[name].found


def test_nothing_is_left_when_the_reader_stops(broken: Iterator[Finding]) -> None:
    process = int(next(broken).found.removeprefix("in "))
    assert process != os.getpid()
    broken.close()  # type: ignore[attr-defined]
    assert not psutil.pid_exists(process)


def test_the_real_checks_have_names_of_their_own_and_only_the_driver_writes_storage() -> None:
    names = [check.name for check in checks(CONFIG, Place(), quick=False)]
    assert len(set(names)) == len(names)
    elsewhere = [check.name for check in checks(CONFIG, Place(is_driver=False), quick=True)]
    assert [name for name in names if name not in elsewhere] == ["storage_path", "MLflow", "engine"]
