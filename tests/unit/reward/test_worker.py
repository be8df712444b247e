"""The child process alone: what it imports, and that nothing but frames leaves through its pipe."""

import io
import subprocess
import sys
from pathlib import Path

from gspo_ray.reward import frames

REPO = Path(__file__).parents[3]


def run_python(code: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code], input=stdin, capture_output=True, cwd=REPO, timeout=60)


def test_imports_stay_light() -> None:
    child = "import sys, gspo_ray.reward.worker, gspo_ray.reward.verify; print({'ray', 'torch'} & set(sys.modules))"
    assert run_python(child).stdout.strip() == b"set()"
    owner = "import sys, gspo_ray.reward.pool; print({'ray', 'torch', 'sympy', 'math_verify'} & set(sys.modules))"
    assert run_python(owner).stdout.strip() == b"set()"


NOISY = r"""
import os
from gspo_ray.reward import verify, worker
from gspo_ray.types import Outcome

def noisy(completion, gold, style=""):
    print("a library prints", flush=True)
    os.write(1, b"from C")
    assert os.read(0, 10) == b""  # standard input is empty for the library
    return verify.Judgement(Outcome.CORRECT, completion + gold + style)

verify.judge = noisy
worker.main(["worker", "2048"])
"""


def test_prints_of_a_library_cannot_reach_the_pipe() -> None:
    completion = "\0 \ud800 é \n"  # NUL, a lone surrogate, not ASCII
    done = run_python(NOISY, frames.pack({"completion": completion, "gold": "g", "style": "s"}))
    replies = io.BytesIO(done.stdout)
    assert frames.read(replies) == {"ready": True}
    assert frames.read(replies) == {
        "outcome": "correct",
        "extracted": completion + "gs",
        "reason": "",
        "retire": False,
    }
    assert replies.read() == b""
    assert done.returncode == 0  # the end of its input is its end


def test_a_frame_cut_short_is_the_end() -> None:
    assert frames.read(io.BytesIO(b"\0\0")) is None
    assert frames.read(io.BytesIO(frames.pack({"a": 1})[:-1])) is None
