"""Hostile answers between good ones: the limits hold, the neighbours are scored, no process is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gspo_ray.errors import RewardError
from gspo_ray.reward.pool import VerifierProcess
from gspo_ray.types import Outcome

REPO = Path(__file__).parents[3]
FOREVER = r"\boxed{9^{9^{9^{9}}}}"
GOOD = (r"\boxed{0.5}", r"\frac{1}{2}")  # needs math-verify, not only the integer rule


@pytest.fixture(scope="module")
def verifier() -> Iterator[VerifierProcess]:
    with VerifierProcess(timeout_s=2, memory_limit_mib=2048) as process:
        yield process


def is_running(pid: int) -> bool:
    """A zombie is not running: it holds no memory and waits only for init to read its status."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_one_verdict_an_item_in_order(verifier: VerifierProcess) -> None:
    verdicts = verifier.score([(r"\boxed{7}", "7"), (r"\boxed{8}", "7"), ("I do not know", "7"), (r"\boxed{5}", "")])
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.WRONG, Outcome.NO_ANSWER, Outcome.ERROR]
    assert [v.reward for v in verdicts] == [1.0, 0.0, 0.0, 0.0]
    assert [v.extracted for v in verdicts] == ["7", "8", None, "5"]
    assert all(0 < v.seconds < 2 for v in verdicts)
    assert verifier.score([]) == []


@pytest.mark.parametrize("hostile", [r"9^{9^{9^{9}}}", "99999999!", r"2^{10^{9}}"])
def test_an_overrun_costs_its_own_item_only(verifier: VerifierProcess, hostile: str) -> None:
    before, hit, after = verifier.score([GOOD, (f"\\boxed{{{hostile}}}", "42"), GOOD])
    assert (before.outcome, after.outcome) == (Outcome.CORRECT, Outcome.CORRECT)
    assert (hit.outcome, hit.reward, hit.extracted) == (Outcome.TIMEOUT, 0.0, hostile)
    assert 2 <= hit.seconds < 4
    assert after.seconds < 2  # the replacement's start-up is not charged to it


def test_four_hostile_then_twenty_normal() -> None:
    with VerifierProcess(timeout_s=1, memory_limit_mib=2048) as verifier:
        verdicts = verifier.score([(FOREVER, "1")] * 4 + [GOOD] * 20)
    assert [v.outcome for v in verdicts] == [Outcome.TIMEOUT] * 4 + [Outcome.CORRECT] * 20


def test_memory_limit_is_an_error_not_a_wrong_answer() -> None:
    # 2^{10^9} has 125 MB; with 256 MiB it runs out, which sympy swallows and calls unequal
    with VerifierProcess(timeout_s=60, memory_limit_mib=256) as verifier:
        first = verifier.pid
        verdicts = verifier.score([GOOD, (r"\boxed{2^{10^{9}}}", "42"), GOOD])
        assert verifier.pid != first  # a process that came near its limit is not used again
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.ERROR, Outcome.CORRECT]


def test_a_completion_that_does_not_fit_the_memory_limit() -> None:
    huge = "x" * 100_000_000  # 100 MB as bytes and again as text, beside 70 MiB of libraries
    with VerifierProcess(timeout_s=60, memory_limit_mib=256) as verifier:
        verdicts = verifier.score([(huge, "1"), GOOD])
    assert [v.outcome for v in verdicts] == [Outcome.ERROR, Outcome.CORRECT]


def test_nul_bytes_surrogates_and_a_megabyte(verifier: VerifierProcess) -> None:
    text = "\0\ud800é" * 1000 + "x" * 1_000_000
    verdicts = verifier.score([(text + r" \boxed{7}", "7"), (r"\boxed{7}" + text, "7"), (text, "7"), GOOD])
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.CORRECT, Outcome.NO_ANSWER, Outcome.CORRECT]


def test_child_killed_while_it_judges() -> None:
    with VerifierProcess(timeout_s=30, memory_limit_mib=2048) as verifier:
        pid = verifier.pid
        assert pid is not None
        killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))  # as the kernel's OOM killer would
        killer.start()
        verdicts = verifier.score([(FOREVER, "1"), GOOD])
        killer.join()
    assert [v.outcome for v in verdicts] == [Outcome.ERROR, Outcome.CORRECT]
    assert verdicts[0].seconds < 10


def test_child_killed_while_idle_costs_no_item(verifier: VerifierProcess) -> None:
    pid = verifier.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(pid))
    assert verifier.score([GOOD])[0].outcome is Outcome.CORRECT


def test_ctrl_c_does_not_reach_the_child(verifier: VerifierProcess) -> None:
    pid = verifier.pid
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    assert verifier.score([GOOD])[0].outcome is Outcome.CORRECT
    assert verifier.pid == pid


def test_scores_from_threads(verifier: VerifierProcess) -> None:
    # math-verify's own timeouts raise off the main thread, and a catch-all made every reward 0
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.append(verifier.score([GOOD])[0].outcome)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome.CORRECT] * 4


def test_close_ends_the_child() -> None:
    verifier = VerifierProcess(timeout_s=2, memory_limit_mib=2048)
    pid = verifier.pid
    assert pid is not None
    assert is_running(pid)
    verifier.close()
    verifier.close()
    assert not is_running(pid)
    with pytest.raises(RewardError, match="closed"):
        verifier.score([GOOD])


def test_a_child_that_cannot_start_says_why() -> None:
    with pytest.raises(RewardError, match=r"(?s)memory_limit_mib.*Error"):  # last: the child's own traceback
        VerifierProcess(timeout_s=2, memory_limit_mib=16)


PARENT = f"""
import threading
from gspo_ray.reward.pool import VerifierProcess
verifier = VerifierProcess(timeout_s=600, memory_limit_mib=2048)
print(verifier.pid, flush=True)
verifier.score([({FOREVER!r}, "1")])
"""


def test_child_dies_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=REPO) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.5)  # the child is in the middle of the endless item and reads no pipe
        assert is_running(pid)
        parent.kill()
    assert eventually(lambda: not is_running(pid))
