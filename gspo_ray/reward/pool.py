"""The verifier of one reward actor: judges completions in a process with a hard time and memory limit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from gspo_ray.errors import RewardError
from gspo_ray.reward.child import Child
from gspo_ray.reward.extract import ExtractionStyle, extract
from gspo_ray.types import Outcome, Verdict

_START_TIMEOUT_S = 120.0  # importing sympy takes 1-2 s, many times that on a machine whose cores are all taken

logger = logging.getLogger(__name__)


class Examined(NamedTuple):
    """A verdict, and why it is not CORRECT."""

    verdict: Verdict
    reason: str


class VerifierProcess:
    """Scores (completion text, gold) pairs one after the other in one child process.

    `style` says where the answer stands in a completion (`extract.py`).

    Synchronous: one call at a time (a lock sees to it), usable from any thread and from async actors' executors.
    An item that overruns `timeout_s` seconds (wall clock, start-up excluded) has its process killed: Outcome.TIMEOUT.
    One that exhausts `memory_limit_mib` MiB of address space or brings the process down: Outcome.ERROR, with the
    reason in the log. Either way the neighbours are not touched. Raises RewardError when a process cannot start.

    The child gets SIGKILL when the THREAD that started it ends (Linux); a child lost like that is replaced.
    """

    def __init__(self, timeout_s: float, memory_limit_mib: int, style: ExtractionStyle = "boxed") -> None:
        self._timeout_s = timeout_s
        self._memory_limit_mib = memory_limit_mib
        self._style: ExtractionStyle = style
        self._lock = threading.Lock()
        self._child: Child | None = self._start()
        self._ready_child()

    @property
    def pid(self) -> int | None:
        """Process id of the current child; None after close()."""
        return self._child.pid if self._child else None

    def score(self, items: Sequence[tuple[str, str]]) -> list[Verdict]:
        """One verdict an item, in order. Items are (completion text without its prompt, gold answer)."""
        examined = self.examine(items)
        for (_, gold), (verdict, reason) in zip(items, examined, strict=True):
            if verdict.outcome in (Outcome.TIMEOUT, Outcome.ERROR):
                answer = verdict.extracted or ""
                logger.warning("verifier %s, answer %.80r, gold %.80r: %s", verdict.outcome, answer, gold, reason)
        return [verdict for verdict, _ in examined]

    def examine(self, items: Sequence[tuple[str, str]]) -> list[Examined]:
        """As `score`, with the reasons instead of a log."""
        with self._lock:
            return [self._examine_one(completion, gold) for completion, gold in items]

    def gold_faults(self, golds: Sequence[str]) -> list[str]:
        """Why each gold answer cannot be read, "" for one that can. The limits hold for each of them."""
        with self._lock:
            return [self._ask({"gold": gold})[0]["reason"] for gold in golds]

    def close(self) -> None:
        """Kill the child. May be called more than once; score() raises RewardError afterwards."""
        with self._lock:
            if self._child is not None:
                self._child.kill()
                self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _examine_one(self, completion: str, gold: str) -> Examined:
        reply, seconds = self._ask({"completion": completion, "gold": gold, "style": self._style})
        outcome = Outcome(reply["outcome"])
        reward = 1.0 if outcome is Outcome.CORRECT else 0.0
        verdict = Verdict(reward=reward, outcome=outcome, extracted=reply["extracted"], seconds=seconds)
        return Examined(verdict, reply["reason"])

    def _ask(self, message: dict[str, str]) -> tuple[dict[str, Any], float]:
        """The child's reply, or what stands for one, and the seconds it took."""
        child = self._ready_child()
        started = time.monotonic()
        try:
            reply = child.ask(message, self._timeout_s)
        except TimeoutError:
            reply = self._lost(Outcome.TIMEOUT, message)
        except EOFError:
            reply = self._lost(Outcome.ERROR, message)
        seconds = time.monotonic() - started
        if reply["retire"]:
            self._replace()
        return reply, seconds

    def _ready_child(self) -> Child:
        if self._child is None:
            raise RewardError("this VerifierProcess is closed")
        if not self._child.is_alive:
            logger.warning("verifier process %d died while idle; starting another", self._child.pid)
            self._replace()
        child = self._child
        try:
            child.wait_ready(_START_TIMEOUT_S)
        except (TimeoutError, EOFError) as error:
            raise RewardError(
                f"the verifier process did not start within {_START_TIMEOUT_S:.0f} s and "
                f"{self._memory_limit_mib} MiB (reward.memory_limit_mib): it {child.kill()}"
            ) from error
        return child

    def _lost(self, outcome: Outcome, message: dict[str, str]) -> dict[str, Any]:
        """What stands for the reply of a process that gave none. The next one starts while the caller goes on."""
        ended = self._replace()
        reason = f"more than {self._timeout_s:g} s" if outcome is Outcome.TIMEOUT else f"process {ended}"
        extracted = extract(message["completion"], self._style) if "completion" in message else None
        return {"outcome": outcome, "extracted": extracted, "reason": reason, "retire": False}

    def _replace(self) -> str:
        assert self._child is not None
        ended = self._child.kill()
        self._child = self._start()
        return ended

    def _start(self) -> Child:
        try:
            return Child(self._memory_limit_mib)
        except OSError as error:
            raise RewardError(f"cannot start a verifier process: {error}") from error
