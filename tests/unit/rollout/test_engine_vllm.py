"""The parts of the vLLM engine that need no vLLM; the engine itself runs in tests/e2e."""

import os
import socket
from types import SimpleNamespace

import pytest

from gspo_ray.errors import EngineError
from gspo_ray.rollout import engine_vllm


def test_folders_of_dead_engines_of_this_host_are_swept_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_vllm.os, "access", lambda *_: False)
    monkeypatch.setattr(engine_vllm.tempfile, "gettempdir", lambda: str(tmp_path))
    host, dead = socket.gethostname(), 2**22 + 1  # above the kernel's largest process id
    for name in (f"{host}-{dead}-a", f"{host}-{os.getpid()}-b", f"other-{dead}-c"):
        (tmp_path / f"gspo-adapters-{name}").mkdir()
    made = engine_vllm._adapter_directory()
    left = {path.name for path in tmp_path.iterdir()}
    kept = {f"gspo-adapters-{host}-{os.getpid()}-b", f"gspo-adapters-other-{dead}-c"}
    assert left == kept | {made.name}
    assert made.name.startswith(f"gspo-adapters-{host}-{os.getpid()}-")


def test_the_sampled_tokens_logprob_is_taken_by_id_and_not_by_place():
    table = {7: SimpleNamespace(logprob=-0.1), 3: SimpleNamespace(logprob=-2.5)}  # 7 ranks first, 3 was sampled
    assert engine_vllm._sampled_logprobs([3], [table]) == (-2.5,)


def test_logprobs_that_do_not_match_the_tokens_are_refused():
    with pytest.raises(EngineError, match="0 log-probs for 2 tokens"):
        engine_vllm._sampled_logprobs([3, 4], None)
