"""The recorded vectors through gspo_ray.algo, and the vectors themselves."""

from __future__ import annotations

import itertools
import json
import math
from decimal import Decimal, localcontext
from typing import Any, NamedTuple, get_args

import pytest
import torch
from torch import Tensor

from gspo_ray.algo.advantages import AdvantageKind, group_advantages
from gspo_ray.algo.aggregation import Aggregation, Divisor
from gspo_ray.algo.kl import KlEstimator
from gspo_ray.algo.losses import LossTerms, Objective, Variant, policy_loss, sequence_log_ratio
from gspo_ray.algo.mismatch import MismatchCorrection, MismatchMode, mismatch_weights
from tests.conformance import make_vectors, oracle
from tests.conformance.replay import Case, complaints, difference, load_cases, padded

LOSS_CASES = load_cases()
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def tensor(values: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(padded(values) if isinstance(values[0], list) else values, dtype=dtype)


CONSTANTS = {
    "old_logprobs_BT": "old_logprobs",
    "advantages": "advantages",
    "weights": "weights",
    "reference_logprobs_BT": "reference_logprobs",
}


class Replayed(NamedTuple):
    loss: float
    gradient: list[list[float]]
    terms: LossTerms
    constants: dict[str, Tensor]  # could have been given a gradient


def through_gspo_ray(case: Case, dtype: torch.dtype = torch.float64) -> Replayed:
    inputs = case["inputs"]
    logprobs_BT = tensor(inputs["logprobs"], dtype).requires_grad_()
    constants = {name: tensor(inputs[key], dtype).requires_grad_() for name, key in CONSTANTS.items() if key in inputs}
    loss, terms = policy_loss(
        logprobs_BT,
        mask_BT=mask_of(case),
        objective=Objective(**case["settings"]),
        divisor=Divisor(**case["divisor"]),
        **constants,
    )
    loss.backward()
    assert logprobs_BT.grad is not None
    return Replayed(float(loss.detach()), logprobs_BT.grad.tolist(), terms, constants)


def mask_of(case: Case) -> Tensor:
    return torch.tensor(padded(case["inputs"]["mask"], 0)).bool()


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("case", LOSS_CASES, ids=lambda case: case["name"])
def test_loss_and_gradient_are_the_recorded_ones(case: Case, precision: str) -> None:
    replayed = through_gspo_ray(case, DTYPES[precision])
    assert complaints(case, replayed.loss, replayed.gradient, precision) == []


@pytest.mark.parametrize("case", LOSS_CASES, ids=lambda case: case["name"])
def test_padding_and_constants_have_no_gradient(case: Case) -> None:
    replayed = through_gspo_ray(case)
    assert not torch.tensor(replayed.gradient)[~mask_of(case)].any()
    assert [name for name, constant in replayed.constants.items() if constant.grad is not None] == []


@pytest.mark.parametrize("case", LOSS_CASES, ids=lambda case: case["name"])
def test_ratios_and_clipped_tokens_are_the_recorded_ones(case: Case) -> None:
    terms, wanted = through_gspo_ray(case).terms, pytest.approx(case["expected"]["log_ratio"], rel=1e-12, abs=1e-15)
    assert terms.log_ratio_B.tolist() == wanted
    assert terms.clipped_tokens_B.tolist() == case["expected"]["clipped_tokens"]
    logprobs_BT, old_logprobs_BT = (tensor(case["inputs"][name]) for name in ("logprobs", "old_logprobs"))
    assert sequence_log_ratio(logprobs_BT, old_logprobs_BT, mask_of(case)).tolist() == wanted


@pytest.mark.parametrize("case", load_cases("advantages"), ids=lambda case: case["name"])
def test_advantages_are_the_recorded_ones(case: Case) -> None:
    found = group_advantages(case["inputs"]["rewards"], kind=case["settings"]["kind"])
    for group, wanted in zip(found, case["expected"]["advantages"], strict=True):
        assert group == pytest.approx(wanted, rel=case["tolerance"]["float64"]["advantages"], abs=0)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("case", load_cases("mismatch_weights"), ids=lambda case: case["name"])
def test_mismatch_weights_are_the_recorded_ones(case: Case, precision: str) -> None:
    inputs, expected = case["inputs"], case["expected"]
    found = mismatch_weights(
        tensor(inputs["learner_logprobs"], DTYPES[precision]),
        tensor(inputs["sampler_logprobs"], DTYPES[precision]),
        mask_of(case),
        MismatchCorrection(**case["settings"]),
    )
    rel = case["tolerance"][precision]["weights"]
    assert found.raw_B.tolist() == pytest.approx(expected["raw"], rel=rel)
    assert found.touched_tokens_B.tolist() == expected["touched_tokens"]
    for row, wanted in zip(found.weights.tolist(), expected["weights"], strict=True):
        assert (row[: len(wanted)] if isinstance(row, list) else row) == pytest.approx(wanted, rel=rel)


def test_micro_batches_of_the_vectors_add_up() -> None:
    cases = {case["name"]: case["expected"] for case in LOSS_CASES}
    whole, *parts = (cases[f"minibatch{part}"] for part in ("", "_first_micro_batch", "_second_micro_batch"))
    assert sum(part["loss"] for part in parts) == pytest.approx(whole["loss"], rel=1e-14)
    assert [row for part in parts for row in part["gradient"]] == whole["gradient"]
    computed, left_out = cases["degenerate_group_computed"], cases["degenerate_group_left_out"]
    assert (left_out["loss"], left_out["gradient"]) == (computed["loss"], computed["gradient"][:4])


def test_every_setting_occurs() -> None:
    settings = [case["settings"] for case in LOSS_CASES]
    assert {s["variant"] for s in settings} == set(get_args(Variant))
    assert {s["aggregation"] for s in settings} == set(get_args(Aggregation))
    assert {s["kl_estimator"] for s in settings if s["kl_coef"]} == set(get_args(KlEstimator))
    assert {c["settings"]["kind"] for c in load_cases("advantages")} == set(get_args(AdvantageKind))
    assert {c["settings"]["mode"] for c in load_cases("mismatch_weights")} == set(get_args(MismatchMode))
    names = [case["name"] for kind in ("loss", "advantages", "mismatch_weights") for case in load_cases(kind)]
    assert len(set(names)) == len(names)


def test_log_probs_are_those_of_probabilities() -> None:
    for case in [*LOSS_CASES, *load_cases("mismatch_weights")]:
        for name in [name for name in case["inputs"] if name.endswith("logprobs")]:
            rows = zip(case["inputs"][name], case["inputs"]["mask"], strict=True)
            assert all(x < 0 for row, mask in rows for x, is_real in zip(row, mask, strict=True) if is_real)


def test_files_are_what_make_vectors_writes() -> None:
    stored = {path.name: path.read_text(encoding="utf-8") for path in make_vectors.FOLDER.iterdir()}
    assert stored == make_vectors.render()
    assert sum(map(len, stored.values())) < 1_000_000


SMALL = [c for c in LOSS_CASES if sum(map(sum, c["inputs"]["mask"])) < 50 and c["settings"]["variant"] != "gspo_token"]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case["name"])
def test_gradient_of_the_oracle_is_its_slope(case: Case) -> None:
    """Central differences with a step of 1e-12, in 40 digits. (gspo_token holds part of its ratio still: no slope.)"""
    step = Decimal("1e-12")
    for row, position in itertools.product(range(len(case["inputs"]["mask"])), range(3)):
        if position >= len(case["inputs"]["mask"][row]) or not case["inputs"]["mask"][row][position]:
            continue
        with localcontext(oracle.CONTEXT):
            up, down = (moved_loss(case, row, position, move) for move in (step, -step))
            slope = float((up - down) / (2 * step))
        assert slope == pytest.approx(case["expected"]["gradient"][row][position], rel=1e-10, abs=1e-15)


def moved_loss(case: Case, row: int, position: int, move: Decimal) -> Decimal:
    logprobs = [list(values) for values in case["inputs"]["logprobs"]]
    logprobs[row][position] = Decimal(logprobs[row][position]) + move
    return oracle.evaluate({**case, "inputs": {**case["inputs"], "logprobs": logprobs}}).loss


def test_a_trainer_that_weighs_by_length_is_found_out() -> None:
    case = next(case for case in LOSS_CASES if case["name"] == "ragged_gspo")
    wrong = {**case, "settings": {**case["settings"], "aggregation": "token_mean"}}
    replayed = through_gspo_ray(wrong)
    found = complaints(case, replayed.loss, replayed.gradient)
    assert found[0].startswith("loss")
    assert "cosine" in found[-1]
    assert complaints(case, math.nan, case["expected"]["gradient"]) != []
    broken = json.loads(json.dumps(case["expected"]["gradient"]))
    broken[5][1999] *= 1 + 1e-6  # one token of 2000
    assert complaints(case, case["expected"]["loss"], broken) != []


def test_difference_is_that_of_two_vectors() -> None:
    """(3, 4) and (3, 0): gap 4 / 3, cosine 3 / 5, scale 5 / 3."""
    assert difference([[3.0], [4.0]], [[3.0], [0.0]]) == pytest.approx((4 / 3, 3 / 5, 5 / 3))
