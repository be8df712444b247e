import threading
import time

import pytest

from gspo_ray.errors import RewardError
from gspo_ray.reward.golds import check_golds
from gspo_ray.reward.workers import VerifierPool
from gspo_ray.types import Outcome

GOOD = (r"\boxed{0.5}", r"\frac{1}{2}")
FOREVER = (r"\boxed{9^{9^{9^{9}}}}", "1")


def test_results_in_order_and_a_slow_item_holds_up_no_other() -> None:
    done: list[int] = []
    with VerifierPool(2, timeout_s=3, memory_limit_mib=2048) as pool:
        pool.examine([GOOD, GOOD])  # both processes are up
        started = time.monotonic()
        after: dict[int, float] = {}

        def on_done(index: int) -> None:
            done.append(index)
            after[index] = time.monotonic() - started

        items = [FOREVER] + [(f"\\boxed{{{number}}}", "7") for number in range(20)]
        examined = pool.examine(items, on_done)
    outcomes = [item.verdict.outcome for item in examined]
    assert outcomes == [Outcome.TIMEOUT] + [Outcome.CORRECT if n == 7 else Outcome.WRONG for n in range(20)]
    assert examined[0].reason == "more than 3 s"
    assert sorted(done) == list(range(21))
    assert done[-1] == 0
    assert max(seconds for index, seconds in after.items() if index) < 3


def test_the_style_reaches_the_processes() -> None:
    with VerifierPool(1, timeout_s=5, memory_limit_mib=2048, style="hashes") as pool:
        right, none = pool.examine([("#### 1/2", r"\frac{1}{2}"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}")])
    assert (right.verdict.outcome, none.verdict.outcome) == (Outcome.CORRECT, Outcome.NO_ANSWER)


def test_more_workers_than_items_and_none_at_all() -> None:
    with VerifierPool(2, timeout_s=5, memory_limit_mib=2048) as pool:
        assert pool.examine([]) == []
        assert [item.verdict.outcome for item in pool.examine([GOOD])] == [Outcome.CORRECT]


def test_a_pool_that_cannot_start_leaves_no_thread() -> None:
    before = threading.active_count()
    with (
        pytest.raises(RewardError, match="memory_limit_mib"),
        VerifierPool(2, timeout_s=5, memory_limit_mib=16) as pool,
    ):
        pool.examine([GOOD])
    assert threading.active_count() == before


def test_gold_answers_are_looked_at_before_a_run() -> None:
    golds = ["7", "see figure", r"\frac{1}{2}", "", "see figure", r"\frac{", r"\frac{1}{0}", "No", "1,080"]
    report = check_golds(golds, num_workers=2)
    assert report.num_checked == len(golds)
    assert [(fault.first, fault.reason, fault.num_problems) for fault in report.faults] == [
        (1, "a placeholder ('see figure')", 2),
        (3, "empty", 1),
        (5, "not readable as LaTeX", 1),
        (6, "undefined", 1),
    ]
    assert report.message == (
        "5 of 9 gold answers cannot be read: 'see figure' (row 2: a placeholder ('see figure')), '' (row 4: empty), "
        r"'\\frac{' (row 6: not readable as LaTeX), ..."
    )


def test_plain_numbers_need_no_process() -> None:
    report = check_golds([str(number) for number in range(-10_000, 10_000)], memory_limit_mib=1)  # none could start
    assert (report.faults, report.message) == ((), "")


def test_looking_at_gold_answers_ends_in_time() -> None:
    golds = [f"\\sqrt{{{number}}}" for number in range(150)]
    report = check_golds(golds, budget_s=0)
    assert report.num_checked == 100
    assert report.message == "50 gold answers were not looked at (time limit)"


def test_a_gold_answer_that_hangs_is_at_fault() -> None:
    report = check_golds([r"\frac{1}{2}", "99999999!"], timeout_s=2)
    assert [(fault.first, fault.reason) for fault in report.faults] == [(1, "more than 2 s")]
