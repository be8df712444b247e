"""Numbers that must not be trained on: each is an error that names the row, never a clamp and never a NaN."""

import math

import pytest
import torch

from gspo_ray.algo.aggregation import Divisor, sequence_weights
from gspo_ray.algo.kl import token_kl
from gspo_ray.algo.losses import Objective, sequence_log_ratio
from gspo_ray.algo.mismatch import MismatchCorrection
from tests.unit.algo.cases import AGGREGATIONS, VARIANTS, random_batch, run

bad_numbers = pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
variants = pytest.mark.parametrize("variant", VARIANTS)


@variants
@bad_numbers
@pytest.mark.parametrize("side", ["logprobs_BT", "old_BT"])
def test_a_real_token_without_a_finite_logprob(variant, bad, side):
    batch = random_batch()
    getattr(batch, side)[2, 6] = bad  # the last token of the longest row
    with pytest.raises(ValueError, match="log-prob of token 6 in row 2 is not finite"):
        run(batch, Objective(variant=variant), batch.divisor())


@variants
def test_minus_infinity_on_both_sides(variant):
    batch = random_batch()
    batch.logprobs_BT[0, 0] = batch.old_BT[0, 0] = -math.inf  # the difference is NaN
    with pytest.raises(ValueError, match="token 0 in row 0"):
        run(batch, Objective(variant=variant), batch.divisor())


@bad_numbers
def test_a_reference_logprob_that_is_not_finite(bad):
    batch = random_batch()
    batch.reference_BT[1, 1] = bad
    with pytest.raises(ValueError, match="reference log-prob of token 1 in row 1"):
        run(batch, Objective(kl_coef=0.1), batch.divisor(), reference=batch.reference_BT)


@variants
@bad_numbers
def test_an_advantage_or_a_weight_that_is_not_finite(variant, bad):
    batch = random_batch()
    broken_B = torch.tensor([1.0, 1.0, 1.0, bad], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"advantage .*in row 3 is not finite"):
        run(batch, Objective(variant=variant), batch.divisor(), advantages=broken_B)
    with pytest.raises(ValueError, match=r"weight .*in row 3 is not finite"):
        run(batch, Objective(variant=variant), batch.divisor(), weights=broken_B)


@variants
def test_an_empty_completion(variant):
    batch = random_batch()
    batch.mask_BT[1] = False
    with pytest.raises(ValueError, match="without tokens in row 1"):
        run(batch, Objective(variant=variant), batch.divisor())
    with pytest.raises(ValueError, match="without tokens in row 1"):
        sequence_log_ratio(batch.logprobs_BT, batch.old_BT, batch.mask_BT)


@pytest.mark.parametrize("variant", ["gspo", "gspo_token"])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_a_ratio_that_overflows(variant, advantage):
    # exp(200) is inf in float32. A > 0: min() would return the clipped value with a NaN gradient (0 x inf);
    # A < 0: loss and gradient would be inf; A = 0: inf x 0 = NaN.
    batch = random_batch(lens=(3, 3), dtype=torch.float32)
    batch.logprobs_BT[1], batch.old_BT[1], batch.advantages_B[1] = 0.0, -200.0, advantage
    with pytest.raises(ValueError, match=r"exp\(200\.0\) in row 1 overflows"):
        run(batch, Objective(variant=variant), batch.divisor())


def test_one_token_whose_ratio_overflows():
    # The mean is harmless (exp(50)); in the token form of GRPO the token alone overflows.
    batch = random_batch(lens=(4, 4), dtype=torch.float32)
    batch.logprobs_BT[1], batch.old_BT[1] = 0.0, 0.0
    batch.old_BT[1, 2] = -200.0
    with pytest.raises(ValueError, match=r"exp\(200\.0\) in row 1 overflows"):
        run(batch, Objective(variant="grpo"), batch.divisor())
    assert run(batch, Objective(variant="gspo"), batch.divisor()).loss.isfinite()


def test_a_finite_ratio_whose_product_with_the_advantage_overflows():
    # exp(88) = 1.65e38 fits float32 (3.4e38), times -3 it does not.
    batch = random_batch(lens=(2,), dtype=torch.float32)
    batch.logprobs_BT[0], batch.old_BT[0], batch.advantages_B[0] = 0.0, -88.0, -3.0
    with pytest.raises(ValueError, match=r"exp\(88\.0\) in row 0 overflows"):
        run(batch, Objective(), batch.divisor())


def test_a_kl_estimate_that_overflows():
    batch = random_batch(dtype=torch.float32)
    batch.reference_BT[2, 3], batch.logprobs_BT[2, 3], batch.old_BT[2, 3] = -0.1, -150.0, -150.0
    with pytest.raises(ValueError, match="k3 estimate of the KL term of token 3 in row 2"):
        run(batch, Objective(kl_coef=1e-3), batch.divisor(), reference=batch.reference_BT)


def test_a_kl_term_without_reference_logprobs():
    batch = random_batch()
    with pytest.raises(ValueError, match="needs reference log-probs"):
        run(batch, Objective(kl_coef=1e-3), batch.divisor())


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(("sequences", "tokens"), [(-1, 0), (0, -1)])
def test_a_divisor_taken_after_rows_were_dropped(aggregation, sequences, tokens):
    batch = random_batch()  # 4 rows, 15 tokens
    divisor = batch.divisor(more_sequences=sequences, more_tokens=tokens)
    message = (
        rf"\({4 + sequences} sequences, {15 + tokens} tokens\) is smaller than the batch \(4 sequences, 15 tokens\)"
    )
    with pytest.raises(ValueError, match=message):
        run(batch, Objective(aggregation=aggregation), divisor)


def test_a_row_that_is_longer_than_the_constant_length():
    divisor = Divisor(num_sequences=2, num_tokens=10, max_tokens=5)
    with pytest.raises(ValueError, match="row 1 has 6 tokens, more than the divisor's 5"):
        sequence_weights(torch.tensor([4, 6]), "constant_length", divisor)
    assert sequence_weights(torch.tensor([4, 5]), "constant_length", divisor).tolist() == [0.4, 0.5]  # the limit itself
    assert sequence_weights(torch.tensor([4, 6]), "sequence_mean", divisor).tolist() == [0.5, 0.5]


def test_numbers_for_every_token_in_the_sequence_form():
    batch = random_batch()
    with pytest.raises(ValueError, match="per-token ones need gspo_token"):
        run(batch, Objective(), batch.divisor(), advantages=batch.advantages_BT)
    with pytest.raises(ValueError, match="per-token ones need gspo_token"):
        run(batch, Objective(), batch.divisor(), weights=batch.weights_BT)


@variants
def test_shapes_that_would_broadcast(variant):
    batch = random_batch(padding=0.0)
    objective, divisor = Objective(variant=variant), batch.divisor()
    for wrong in (batch.old_BT[:1], batch.old_BT[:, :1]):
        with pytest.raises(ValueError, match="differ in shape"):
            run(batch._replace(old_BT=wrong), objective, divisor)
    for name in ("advantages", "weights"):
        with pytest.raises(ValueError, match="4 sequences need as many"):
            run(batch, objective, divisor, **{name: torch.ones(1, dtype=torch.float64)})


def test_a_mask_of_numbers():
    batch = random_batch()
    with pytest.raises(RuntimeError, match="bool"):
        run(batch._replace(mask_BT=batch.mask_BT.double()), Objective(), batch.divisor())


@pytest.mark.parametrize("wrong", ["gspo-token", "GSPO", ""])
def test_a_misspelt_name_trains_nothing_else(wrong):
    with pytest.raises(ValueError, match="unknown variant"):
        Objective(variant=wrong)
    with pytest.raises(ValueError, match="unknown aggregation"):
        sequence_weights(torch.tensor([1]), wrong, Divisor(num_sequences=1, num_tokens=1, max_tokens=1))
    with pytest.raises(ValueError, match="unknown KL estimator"):
        token_kl(torch.zeros(1, 1), torch.zeros(1, 1), wrong)
    with pytest.raises(ValueError, match="unknown mismatch mode"):
        MismatchCorrection(mode=wrong)


@pytest.mark.parametrize("band", [(-1e-4, 4e-4), (1.0, 4e-4), (3e-4, -1e-4), (math.nan, 4e-4), (3e-4, math.nan)])
def test_a_clip_band_that_does_not_lie_around_one(band):
    with pytest.raises(ValueError, match="clip band"):
        Objective(eps_low=band[0], eps_high=band[1])
