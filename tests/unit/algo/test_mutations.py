"""The tests of the objective find what they are there to find."""

import pytest

from tests.conformance.mutant import Mutation, first_failure
from tests.conformance.mutations import MUTATIONS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.fault.replace(" ", "-"))
def test_a_deliberate_fault_is_found(mutation: Mutation):
    assert first_failure(mutation.tests, mutation) is not None, f"no test of {mutation.tests} found it"


@pytest.mark.parametrize("tests", sorted({mutation.tests for mutation in MUTATIONS}))
def test_a_copy_without_a_fault_passes(tests: str):
    assert first_failure(tests, None) is None


def test_a_fault_whose_place_has_changed_is_named():
    gone = Mutation("old fault", "losses.py", "test_losses", "no such text", "")
    with pytest.raises(ValueError, match=r"old fault: 0 times in algo/losses\.py, not once: 'no such text'"):
        first_failure("test_losses", gone)
