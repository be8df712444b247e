"""Checks that go wrong in every way, and the process that runs them in place of the real ones."""

import os
import signal
import time
from typing import Any

import gspo_ray.doctor.child as child
from gspo_ray.doctor.checks import Check
from gspo_ray.doctor.finding import Finding, Level
from gspo_ray.errors import ModelError


def good(name: str) -> Check:
    def run() -> Finding:
        print("libraries talk")
        return Finding(name, Level.PASS, f"in {os.getpid()}")

    return Check(name, run)


def hang() -> Finding:
    time.sleep(600)
    raise AssertionError


def die() -> Finding:
    print("out of memory", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def leave() -> Finding:
    os._exit(3)


def stumble() -> Finding:
    raise ValueError("two\nlines")


def refuse() -> Finding:
    raise ModelError("no such model. Name another.")


def broken_checks(*_: Any, **__: Any) -> list[Check]:
    return [
        good("first"),
        Check("hangs", hang, limit_s=1.0),
        good("after the hang"),
        Check("dies", die),
        Check("leaves", leave),
        Check("stumbles", stumble),
        Check("refuses", refuse),
        good("last"),
    ]


if __name__ == "__main__":
    child.checks = broken_checks
    child.main()
