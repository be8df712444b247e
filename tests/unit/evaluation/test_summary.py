import json

import pytest

from gspo_ray.evaluation.compare import compare
from gspo_ray.evaluation.records import DataManifest
from gspo_ray.evaluation.result_files import result_of
from gspo_ray.evaluation.summary import summarise
from gspo_ray.evaluation.verdict import (
    change_text,
    failed_sentence,
    interval_text,
    level_text,
    result_lines,
    verdict_sentence,
    verdict_word,
)
from tests.unit.evaluation.factories import make_problem, make_protocol, simulated_problems

PROTOCOL = make_protocol(data=DataManifest(name="toy", sha256="d", problems=4), samples_per_problem=4)
PROBLEMS = [make_problem("a", "cccw"), make_problem("b", "cwwn"), make_problem("c", "ntwc"), make_problem("d", "wwww")]


def test_the_summary_of_a_small_set_by_hand():
    summary = summarise(PROTOCOL, PROBLEMS, ["e"], where="eval.jsonl")
    assert summary["problems"] == 4
    assert summary["failed_problems"] == ["e"]
    assert (summary["generations"], summary["correct_generations"], summary["passed_problems"]) == (16, 5, 3)
    assert summary["outcomes"] == {"correct": 5, "wrong": 8, "no_answer": 2, "timeout": 1, "error": 0}
    assert summary["average_at_n"] == 5 / 16
    assert summary["pass_at_n"] == 3 / 4
    # pass@2 with 3, 1, 1, 0 right of 4: 1, 1/2, 1/2, 0
    assert [summary["pass_at_k"][k]["value"] for k in ("1", "2", "4")] == [5 / 16, 0.5, 0.75]
    # right, wrong ("8" twice), wrong ("8" twice, once timed out), wrong
    assert summary["majority_at_n"] == 1 / 4
    assert summary["format_rate"] == 14 / 16
    low, high = summary["intervals_95"]["average_at_n"]
    assert 0 <= low < 5 / 16 < high <= 1


def test_everything_that_made_the_numbers_is_in_the_summary():
    protocol = json.loads(json.dumps(summarise(PROTOCOL, PROBLEMS, (), where="")))["protocol"]
    assert protocol == json.loads(json.dumps(PROTOCOL.to_json()))
    for key in ("model", "adapter_sha256", "data", "sampling", "seed", "code_version", "engine", "verifier", "prompt"):
        assert key in protocol


def test_one_sample_a_problem_reports_no_k_above_1():
    protocol = make_protocol(samples_per_problem=1)
    summary = summarise(protocol, [make_problem("a", "c"), make_problem("b", "w")], (), where="")
    assert list(summary["pass_at_k"]) == ["1"]
    assert summary["average_at_n"] == summary["pass_at_n"] == 0.5
    assert "pass@" not in json.dumps(summary["intervals_95"])


def test_a_second_result_brings_a_verdict_with_all_numbers():
    base = result_of(make_protocol(), simulated_problems(1), (), where="base.jsonl:1")
    protocol = make_protocol(adapter_sha256="a" * 64, adapter_step=20)
    comparison = summarise(protocol, simulated_problems(2, shift=1.5), (), where="", base=base)["comparison"]
    assert comparison["verdict"] == "better"
    assert comparison["base"] == {"label": "Base", "adapter": None, "seed": 42, "runs": 1}
    average = comparison["differences"]["average"]
    assert average["value"] == pytest.approx(average["new"] - average["base"])
    assert average["interval_95"][0] > 0
    assert average["p_value"] < 0.05
    assert average["detectable"] > 0
    assert json.loads(json.dumps(comparison)) == comparison


@pytest.mark.parametrize(("shift", "word"), [(1.5, "better"), (-1.5, "worse"), (0.0, "undecidable")])
def test_the_sentence_says_the_word_and_every_number(shift, word):
    base = result_of(make_protocol(), simulated_problems(1), (), where="")
    new = result_of(make_protocol(adapter_sha256="a"), simulated_problems(3, shift=shift), (), where="")
    difference = compare(base, new)["average"]
    sentence = verdict_sentence(difference, new)
    assert sentence.startswith(f"{word}: avg@12 ")
    for part in (
        level_text("average", difference.new),
        level_text("average", difference.base),
        change_text("average", difference.value),
        "95 % interval",
        "p ",
        "30 common problems",
        "80 % power",
    ):
        assert part in sentence


def test_lengths_and_format_are_neither_better_nor_worse():
    base = result_of(make_protocol(), simulated_problems(1), (), where="")
    new = result_of(make_protocol(), simulated_problems(2, tokens=2000.0, boxed=0.95), (), where="")
    differences = compare(base, new)
    assert verdict_word(differences["tokens"]) == "lower"
    assert verdict_word(differences["format"]) == "higher"


def test_failed_problems_are_said_to_be_left_out_and_what_they_could_change():
    result = result_of(PROTOCOL, PROBLEMS, ["e"], where="")
    # 5 of 16 over 4 problems: 31.2 %; over 5 problems 5 of 20: 25.0 %
    assert failed_sentence(result) == (
        "1 of 5 problems gave no result and are left out (e); counted as wrong they would make avg@4 25.0 %."
    )
    assert result_lines(result)[-1] == failed_sentence(result)


def test_the_lines_of_a_result_name_each_metric_once():
    lines = result_lines(result_of(PROTOCOL, PROBLEMS, (), where=""))
    names = [line[:12].strip() for line in lines[1:]]
    assert names == ["avg@4", "pass@2", "pass@4", "maj@4", "format rate", "truncated", "mean tokens"]


def test_numbers_as_text():
    estimate = result_of(PROTOCOL, PROBLEMS, (), where="").estimate("tokens")
    assert level_text("tokens", 6489.8) == "6,490"
    assert change_text("tokens", -3108.0) == "-3,108 tokens"
    assert level_text("average", 0.4111) == "41.1 %"
    assert interval_text("tokens", estimate).count("to") == 1
