"""Three estimates of one divergence, on the policy's own samples."""

import numpy as np
import pytest
import torch

from gspo_ray.algo.kl import token_kl
from tests.unit.algo.cases import ESTIMATORS

POLICY = np.array([0.5, 0.3, 0.2])
REFERENCE = np.array([0.4, 0.4, 0.2])


def estimates(kind):
    """The estimate for each of the three outcomes."""
    return token_kl(torch.tensor(POLICY).log(), torch.tensor(REFERENCE).log(), kind)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        # log policy = -1, log reference = -1.5: x = -0.5
        ("k1", 0.5),
        ("k2", 0.125),
        ("k3", 0.1065307),  # e^-0.5 - 1 + 0.5
    ],
)
def test_values_by_hand(kind, wanted):
    value = token_kl(torch.tensor([[-1.0]]).double(), torch.tensor([[-1.5]]).double(), kind)
    assert float(value) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_unbiased_over_the_policys_samples(kind):
    # KL(policy || reference) = sum p log(p / q), by enumeration
    wanted = float((POLICY * np.log(POLICY / REFERENCE)).sum())
    assert wanted == pytest.approx(0.0252672, abs=1e-7)  # and not the other direction, 0.0258154
    assert float((torch.tensor(POLICY) * estimates(kind)).sum()) == pytest.approx(wanted, abs=1e-12)


def test_k2_is_half_the_square_and_close_to_it():
    assert float((torch.tensor(POLICY) * estimates("k2")).sum()) == pytest.approx(0.0252672, abs=1e-3)


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_k2_and_k3_are_never_negative(kind):
    assert bool((estimates(kind) >= 0).all())
    assert bool((estimates("k1") < 0).any())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_equal_policies_are_at_distance_zero_to_the_last_bit(kind):
    # A k3 made of exp(x) - x - 1 without expm1 would lose the last digits near zero.
    logprobs = torch.tensor([[-0.3, -7.0]])
    assert token_kl(logprobs, logprobs.clone(), kind).tolist() == [[0.0, 0.0]]


def test_k3_keeps_its_digits_near_zero_in_float32():
    # x = 1e-4: x^2 / 2 = 5e-9; exp(x) in float32 is a multiple of 1.2e-7.
    value = token_kl(torch.tensor([[0.0]]), torch.tensor([[1e-4]]), "k3")
    assert float(value) == pytest.approx(5e-9, rel=0.02)


def expected_gradient(kind):
    """d E[kl] / d logits with the samples held fixed, by enumeration of the policy's samples."""
    logits = torch.tensor(POLICY).log().requires_grad_(True)
    logprobs = logits.log_softmax(-1)
    (torch.tensor(POLICY) * token_kl(logprobs, torch.tensor(REFERENCE).log(), kind)).sum().backward()
    return logits.grad


def test_as_a_loss_k1_does_not_pull_and_k2_has_the_gradient_of_the_divergence():
    logits = torch.tensor(POLICY).log().requires_grad_(True)
    policy = logits.softmax(-1)
    (policy * (policy.log() - torch.tensor(REFERENCE).log())).sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(expected_gradient("k1"), torch.zeros(3).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(expected_gradient("k2"), logits.grad, rtol=0, atol=1e-12)
    # k3: sum p (1 - q / p) d log p = -sum q d log p, that of KL(reference || policy); by the logits p - q
    torch.testing.assert_close(expected_gradient("k3"), torch.tensor(POLICY - REFERENCE), rtol=0, atol=1e-12)
