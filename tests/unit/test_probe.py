"""The proof that an adapter arrived: what it lets pass, what stops the run, and what the message says."""

import asyncio
import math

import pytest

from gspo_ray.errors import EngineError
from gspo_ray.probe import AdapterProbe
from gspo_ray.tracking.metrics import METRICS
from gspo_ray.types import Adapter, WeightVersion


class Scores:
    """Stands for learner and sampler alike: `score` gives what it is told to."""

    def __init__(self, value):
        self.value, self.asked = value, []

    async def score(self, token_ids, *, num_prompt):
        self.asked.append((tuple(token_ids), num_prompt))
        return self.value


def make_adapter(step=1):
    return Adapter(version=WeightVersion(step=step, sha256=f"sha-{step}"), payload=b"12345", peft_config="{}")


def make_probe(tolerance=0.01):
    return AdapterProbe(token_ids=(1, 2, 3, 4), num_prompt=2, tolerance=tolerance)


def check(probe, engines, learner, *, step=1, echoes=None):
    adapter = make_adapter(step)
    sampler = Scores(engines)
    learner = Scores(learner)
    result = asyncio.run(
        probe.check(adapter, [adapter.version] * len(engines) if echoes is None else echoes, sampler, learner)
    )
    assert sampler.asked == learner.asked == [((1, 2, 3, 4), 2)]
    return result


def test_engines_that_agree_give_the_numbers_of_the_push():
    # engine 0 is 0.001 off on both tokens; engine 1 is off by 0.002 and 0.006: mean 0.004, the worse one
    values = check(make_probe(), [[-1.001, -2.001], [-1.002, -2.006]], [-1.0, -2.0], step=3)
    assert values == {
        "sync/version": 3.0,
        "sync/adapter_bytes": 5.0,
        "sync/probe_gap": pytest.approx(0.004),
        "sync/probe_tolerance": 0.01,
        "sync/probe_shift": 0.0,  # nothing to compare with at the first push
    }
    assert values.keys() <= METRICS.keys()


def test_the_shift_is_the_learners_own_change_since_the_last_push():
    probe = make_probe()
    check(probe, [[-1.0, -2.0]], [-1.0, -2.0])
    # |-1.1 + 1.0| and |-2.3 + 2.0|: mean 0.2
    assert check(probe, [[-1.1, -2.3]], [-1.1, -2.3], step=2)["sync/probe_shift"] == pytest.approx(0.2)


def test_a_disagreement_stops_the_run_with_both_numbers():
    with pytest.raises(EngineError) as caught:
        check(make_probe(), [[-1.0, -2.0], [-1.5, -2.7]], [-1.0, -2.0], step=3)
    message = str(caught.value)
    assert "engine 1" in message
    assert "policy-3" in message
    assert "-2.10000" in message  # mean of -1.5, -2.7
    assert "-1.50000" in message  # mean of -1.0, -2.0
    assert "6.00e-01" in message
    assert "1e-02" in message
    assert "rollout.probe_tolerance" in message


def test_gaps_of_opposite_sign_do_not_cancel():
    with pytest.raises(EngineError, match="does not sample"):
        check(make_probe(), [[-1.5, -1.5]], [-1.0, -2.0])


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_score_that_is_not_a_number_stops_the_run(bad):
    with pytest.raises(EngineError, match="does not sample"):
        check(make_probe(), [[bad, -2.0]], [-1.0, -2.0])
    with pytest.raises(EngineError, match="does not sample"):
        check(make_probe(), [[-1.0, -2.0], [-1.0, bad]], [-1.0, -2.0])


def test_an_engine_that_stayed_on_the_base_model_is_found():
    # B44, B45: the adapter loads without a word and does nothing
    probe = make_probe()
    check(probe, [[-1.0, -2.0]], [-1.0, -2.0], step=0)
    with pytest.raises(EngineError, match="policy-1"):
        check(probe, [[-1.0, -2.0]], [-1.2, -2.2], step=1)


def test_within_the_tolerance_but_nearer_to_the_old_weights_is_stale():
    # learner moved from -1.0 to -1.015 (shift 0.015 > 0.01); the engine is 0.009 from new and 0.006 from old
    probe = make_probe()
    check(probe, [[-1.0, -1.0]], [-1.0, -1.0], step=1)
    with pytest.raises(EngineError, match=r"before policy-2.*6\.00e-03.*9\.00e-03"):
        check(probe, [[-1.006, -1.006]], [-1.015, -1.015], step=2)


def test_small_steps_below_the_tolerance_add_up_until_they_are_seen():
    """An engine that only wobbles is found once the learner is further than the tolerance from it."""
    probe = make_probe()
    check(probe, [[-1.0, -1.0]], [-1.0, -1.0], step=0)
    check(probe, [[-1.0, -1.0001]], [-1.004, -1.004], step=1)
    check(probe, [[-1.0, -1.0]], [-1.008, -1.008], step=2)
    with pytest.raises(EngineError, match="policy-3"):
        check(probe, [[-1.0, -1.0]], [-1.012, -1.012], step=3)


@pytest.mark.parametrize("echo", [WeightVersion(step=0, sha256="sha-1"), WeightVersion(step=1, sha256="other")])
def test_an_echo_of_another_step_or_other_bytes_stops_the_run(echo):
    with pytest.raises(EngineError, match=r"engine 1 echoes .*but the learner pushed .*sha-1"):
        check(make_probe(), [[-1.0, -2.0]] * 2, [-1.0, -2.0], echoes=[make_adapter().version, echo])


def test_a_score_of_another_length_is_an_error_and_no_silent_cut():
    with pytest.raises(ValueError, match="zip"):
        check(make_probe(), [[-1.0]], [-1.0, -2.0])


def test_an_engine_whose_scores_stay_the_same_bits_ignores_the_adapter():
    """In bfloat16 one update (here 0.01 a token) hides below the tolerance of 0.1: the bits still have to move."""
    probe = make_probe(tolerance=0.1)
    check(probe, [[-1.02, -2.03], [-1.01, -2.0]], [-1.0, -2.0])
    with pytest.raises(EngineError, match=r"engine 1 ignores policy-2: .* moved .* by 1\.00e-02 a token.* exactly 0"):
        check(probe, [[-1.03, -2.03], [-1.01, -2.0]], [-1.01, -2.01], step=2)


def test_an_update_too_small_to_show_moves_nobody_and_passes():
    probe = make_probe()
    check(probe, [[-1.0, -2.0]], [-1.0, -2.0])
    assert check(probe, [[-1.0, -2.0]], [-1.00001, -2.00001], step=2)["sync/probe_shift"] < 1e-4
