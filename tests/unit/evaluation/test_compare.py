import dataclasses
import math

import pytest

from gspo_ray.errors import DataError
from gspo_ray.evaluation.compare import Direction, Method, compare, compare_family
from gspo_ray.evaluation.records import DataManifest
from gspo_ray.evaluation.result import pooled
from gspo_ray.evaluation.result_files import read_result, result_of
from gspo_ray.types import SamplingParams
from tests.unit.evaluation.factories import (
    lab_summary,
    make_problem,
    make_protocol,
    simulated_problems,
    write_lines,
    write_published,
)


def result(problems, where="eval.jsonl:1", **changes):
    return result_of(make_protocol(**changes), problems, (), where=where)


def four(patterns, **changes):
    """Problems a, b, c, ... with these samples."""
    problems = [make_problem(chr(97 + index), pattern) for index, pattern in enumerate(patterns)]
    return result(problems, samples_per_problem=4, **changes)


ADAPTER = {"adapter_sha256": "a" * 64, "adapter_step": 20}


def test_a_worked_comparison():
    base = four(["wwww", "cwww", "ccww", "cccc"])
    new = four(["cccw", "cccw", "cccw", "cccc"], **ADAPTER)
    average = compare(base, new)["average"]
    # 0, 1, 2, 4 hits of 4 against 3, 3, 3, 4: differences 3, 2, 1, 0; p = 2 / 2**3
    assert (average.base, average.new) == (7 / 16, 13 / 16)
    assert average.value == pytest.approx(6 / 16)
    assert average.p_value == average.p_adjusted == 0.25
    assert (average.problems, average.tests, average.method) == (4, 1, Method.EXACT)
    assert average.direction is Direction.UNDECIDABLE


def test_a_clear_gain_a_clear_loss_and_none():
    base = result(simulated_problems(1))
    gain = compare(base, result(simulated_problems(2, shift=1.5), **ADAPTER))["average"]
    loss = compare(base, result(simulated_problems(2, shift=-1.5), **ADAPTER))["average"]
    same = compare(base, result(simulated_problems(3), **ADAPTER))["average"]
    assert [gain.direction, loss.direction, same.direction] == ["higher", "lower", "undecidable"]
    assert gain.interval.low > 0 > loss.interval.high
    assert same.interval.low < 0 < same.interval.high


def test_only_common_problems_are_compared():
    base = four(["wwww", "cwww", "ccww", "cccc"])
    part = four(["cccw", "cccw"], **ADAPTER)
    average = compare(base, part)["average"]
    assert (average.problems, average.base, average.new) == (2, 1 / 8, 6 / 8)


def test_pooling_runs_averages_each_problem_and_keeps_the_test_exact():
    runs = [four(["cwww", "ccww"], seed=1), four(["ccww", "cccc", "cccc"], seed=2)]
    base = pooled(runs)
    assert base.problem_ids == ("a", "b")
    assert list(base.values["average"]) == [3 / 8, 6 / 8]
    assert (base.runs, base.generations) == (2, 16)
    average = compare(base, four(["cccc", "cccc"], **ADAPTER))["average"]
    assert average.value == pytest.approx((5 / 8 + 2 / 8) / 2)
    assert (average.p_value, average.method) == (0.5, Method.EXACT)  # 2 of 2**2 patterns


def test_the_best_of_several_is_corrected_for_the_choice():
    base = result(simulated_problems(1))
    shifts = (0.0, 0.2, 0.9)
    news = [result(simulated_problems(5 + i, shift=s), **ADAPTER) for i, s in enumerate(shifts)]
    family = compare_family(base, news, "average")
    alone = [compare(base, new)["average"] for new in news]
    assert [difference.p_value for difference in family] == [difference.p_value for difference in alone]
    smallest = min(range(3), key=lambda index: family[index].p_value)
    assert family[smallest].p_adjusted == pytest.approx(3 * alone[smallest].p_value)
    assert all(corrected.detectable > one.detectable for corrected, one in zip(family, alone, strict=True))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sampling": SamplingParams(max_tokens=4096)}, "sampling.max_tokens is 4096, but 8192 in base.jsonl:1"),
        ({"sampling": SamplingParams(max_tokens=8192, temperature=0.6)}, "sampling.temperature is 0.6"),
        ({"model": "other"}, "model is 'other'"),
        ({"prompt": {"template": "{question}!", "system": None}}, "prompt.template is '{question}!'"),
        ({"verifier": "math-verify 0.8"}, "verifier is"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_results_of_other_settings_are_not_compared(changes, says):
    base = result(simulated_problems(1), where="base.jsonl:1")
    new = result(simulated_problems(2), where="new.jsonl:1", **ADAPTER | changes)
    with pytest.raises(DataError, match="cannot be compared") as caught:
        compare(base, new)
    assert str(caught.value).startswith("new.jsonl:1: ")
    assert says in str(caught.value)


def test_other_numbers_of_samples_are_not_compared():
    base = result(simulated_problems(1, n=8), samples_per_problem=8)
    with pytest.raises(DataError, match="samples_per_problem is 12, but 8"):
        compare(base, result(simulated_problems(1), **ADAPTER))


def test_seed_code_and_the_file_of_the_problems_may_differ():
    new = result(
        simulated_problems(2),
        seed=7,
        code_version="9",
        engine="x",
        data=DataManifest(name="b", sha256="e", problems=30),
    )
    assert compare(result(simulated_problems(1)), new)["average"].problems == 30


def test_a_problem_with_two_answers_is_two_problems():
    base = result([make_problem("a", "cc")], samples_per_problem=2)
    new = result([make_problem("a", "cc", gold="9")], samples_per_problem=2, where="new.jsonl:1")
    with pytest.raises(DataError, match="problem 'a' has the answer '9', but '7' in eval"):
        compare(base, new)


def test_sets_without_a_common_problem_are_refused():
    with pytest.raises(DataError, match="no problem in common"):
        compare(result([make_problem("a", "c" * 12)]), result([make_problem("b", "c" * 12)]))


def test_summaries_alone_are_compared_with_the_largest_variance_that_they_allow(tmp_path):
    results = [read_result(path) for path in write_published(tmp_path)]
    base = pooled(results[:2])
    assert base.means["average"] == pytest.approx((148 + 146) / 720)
    accuracy, boxed, length = (compare_family(base, results[2:], metric) for metric in ("average", "format", "tokens"))
    assert {difference.method for difference in accuracy} == {Method.BOUND}
    assert [difference.direction for difference in accuracy] == ["undecidable"] * 5
    assert [difference.direction for difference in boxed] == ["undecidable", *["higher"] * 4]
    assert [difference.direction for difference in length] == [*["undecidable"] * 3, "lower", "lower"]
    # format of step 20: shares 0.47085 and 0.6222 of 30, pooled 0.5465, error 0.12854, z 1.1774, p 0.2390; the
    # largest of five p-values, so Holm leaves it
    assert boxed[0].p_adjusted == pytest.approx(0.2390, abs=5e-4)


def test_lengths_without_a_limit_and_without_records_are_not_compared(tmp_path):
    base = read_result(write_lines(tmp_path / "base.jsonl", lab_summary(max_tokens=None)))
    new = read_result(write_lines(tmp_path / "step20.jsonl", lab_summary(max_tokens=None)))
    assert set(compare(base, new)) == {"average", "pass@12", "format"}
    assert not base.estimate("tokens").is_known


def test_summaries_of_other_numbers_of_problems_are_refused(tmp_path):
    base = read_result(write_lines(tmp_path / "base.jsonl", lab_summary()))
    new = read_result(write_lines(tmp_path / "step20.jsonl", lab_summary(problems=28)))
    with pytest.raises(DataError, match=r"28 problems, but 30 in .*base\.jsonl:1"):
        compare(base, new)


def test_one_result_with_records_and_one_without_are_compared_by_their_bounds():
    records = result(simulated_problems(1))
    alone = dataclasses.replace(records, values={}, problem_ids=(), golds=())
    assert compare(alone, records)["average"].method is Method.BOUND
    assert compare(records, alone)["average"].p_value == 1.0


def test_no_difference_anywhere_still_has_an_honest_interval():
    difference = compare(four(["cccc"] * 8), four(["cccc"] * 8, **ADAPTER))["average"]
    unseen = 1 - 0.025 ** (1 / 8)
    assert difference.p_value == 1.0
    assert [difference.interval.low, difference.interval.high] == pytest.approx([-unseen, unseen])
    assert math.isnan(difference.detectable)
