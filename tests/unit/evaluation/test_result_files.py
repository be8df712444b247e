import json

import pytest

from gspo_ray.errors import DataError
from gspo_ray.evaluation.log import EvalLog
from gspo_ray.evaluation.records import DataManifest, FailedRecord
from gspo_ray.evaluation.result_files import read_result
from tests.unit.evaluation.factories import (
    PUBLISHED,
    lab_summary,
    make_problem,
    make_protocol,
    simulated_problems,
    write_lines,
    write_published,
    write_result,
)


def test_our_own_file_gives_the_numbers_of_its_records(tmp_path):
    protocol = make_protocol(data=DataManifest(name="toy", sha256="d", problems=2), samples_per_problem=4, seed=5)
    path = write_result(tmp_path / "eval.jsonl", protocol, [make_problem("b", "cccw"), make_problem("a", "wwnn")])
    result = read_result(path)
    assert result.problem_ids == ("a", "b")
    assert list(result.values["average"]) == [0.0, 0.75]
    assert list(result.values["majority"]) == [0.0, 1.0]
    # pass@2: nothing of 0 right; every pair of 3 right and 1 wrong holds a right one
    assert list(result.values["pass@2"]) == [0.0, 1.0]
    assert result.means["format"] == 6 / 8
    assert (result.label, result.is_base, result.seed, result.generations) == ("Base", True, 5, 8)


def test_an_adapter_is_known_by_its_step_or_else_by_its_hash(tmp_path):
    problems = simulated_problems(1)
    known = make_protocol(adapter_sha256="abcdef0123456789", adapter_step=20)
    unknown = make_protocol(adapter_sha256="abcdef0123456789")
    assert read_result(write_result(tmp_path / "a.jsonl", known, problems)).label == "Step 20"
    assert read_result(write_result(tmp_path / "b.jsonl", unknown, problems)).label == "Adapter abcdef01"


def test_an_unfinished_file_is_refused(tmp_path):
    path = tmp_path / "eval.jsonl"
    with EvalLog(path, make_protocol(), device="cpu", gpus=0) as log:
        for problem in simulated_problems(1)[:23]:
            log.add(problem)
    with pytest.raises(DataError, match=r"eval\.jsonl: unfinished, 7 of 30 problems"):
        read_result(path)


def test_failed_problems_complete_a_file_and_count_in_no_rate(tmp_path):
    path = tmp_path / "eval.jsonl"
    with EvalLog(path, make_protocol(), device="cpu", gpus=0) as log:
        for problem in simulated_problems(1)[:28]:
            log.add(problem)
        for number in (28, 29):
            log.add(FailedRecord(problem_id=f"toy-{number}", error="out of memory"))
    result = read_result(path)
    assert (result.num_problems, result.failed) == (28, ("toy-28", "toy-29"))
    assert result.means["average"] == pytest.approx(result.values["average"].sum() / 28)


def test_a_file_without_one_result_is_refused(tmp_path):
    protocol = make_protocol(data=DataManifest(name="toy", sha256="d", problems=1))
    with EvalLog(tmp_path / "eval.jsonl", protocol, device="cpu", gpus=0) as log:
        log.add(FailedRecord(problem_id="toy-0", error="out of memory"))
    with pytest.raises(DataError, match="no problem was evaluated"):
        read_result(tmp_path / "eval.jsonl")


# Files of agentic-rl-lab


def test_the_published_rows_are_read_from_their_summaries(tmp_path):
    for path in write_published(tmp_path):
        result = read_result(path)
        correct, passed, boxed, tokens = PUBLISHED[path.stem]
        assert result.correct_generations == correct
        assert round(30 * result.means["pass@12"]) == passed
        assert (result.means["format"], result.means["tokens"]) == (boxed, tokens)
        assert result.is_base == ("base" in path.stem)
        assert not result.values
    assert result.step == 100


def generation(correct, *, answer=7, tokens=100, stop="stop"):
    return {
        "predicted_answer": answer if correct else 8,
        "boxed_answer": "7",
        "correct": correct,
        "formatted": True,
        "completion_tokens": tokens,
        "stop_reason": stop,
        "text": "...",
    }


def lab_problem(problem_id, hits, **changes):
    return {
        "type": "problem",
        "problem_id": problem_id,
        "problem": "3+4?",
        "ground_truth": "7",
        "val_n": len(hits),
        "generations": [generation(bool(hit)) for hit in hits],
    } | changes


SMALL = lab_summary(
    val_n=4, problems=2, generations=8, average_at_n=3 / 8, pass_at_n=0.5, format_rate=1.0, mean_completion_tokens=100.0
)
PROBLEMS = [lab_problem(0, [1, 1, 1, 0]), lab_problem(1, [0, 0, 0, 0])]


def test_problem_records_of_the_lab_count_when_they_are_there(tmp_path):
    result = read_result(write_lines(tmp_path / "aime25-base.jsonl", *PROBLEMS, SMALL))
    assert list(result.values["average"]) == [0.75, 0.0]
    assert list(result.values["majority"]) == [1.0, 0.0]
    assert list(result.values["truncated"]) == [0.0, 0.0]
    assert result.problem_ids == ("0", "1")


def test_the_last_summary_counts_and_blank_lines_do_not(tmp_path):
    path = write_lines(tmp_path / "aime25-base.jsonl", lab_summary(average_at_n=0.1), lab_summary(average_at_n=0.2))
    path.write_text("\n" + path.read_text() + "\n\n")
    assert read_result(path).means["average"] == 0.2


def test_the_number_of_problems_follows_from_generations_when_it_is_not_stated(tmp_path):
    summary = lab_summary()
    del summary["problems"]
    assert read_result(write_lines(tmp_path / "base.jsonl", summary)).num_problems == 30


@pytest.mark.parametrize(
    ("records", "line", "says"),
    [
        (PROBLEMS, 2, "no summary record"),
        ([lab_summary(val_n="12")], 1, 'val_n is "12", expected a whole number'),
        ([lab_summary(val_n=0)], 1, "val_n is 0"),
        ([lab_summary(average_at_n=None)], 1, "average_at_n is null, expected a finite number"),
        ([lab_summary(average_at_n=True)], 1, "average_at_n is true"),
        ([lab_summary(average_at_n=41.1)], 1, "average_at_n is 41.1, expected between 0 and 1"),
        ([lab_summary(pass_at_n=-0.1)], 1, "pass_at_n is -0.1"),
        ([lab_summary(format_rate=1.5)], 1, "format_rate is 1.5"),
        ([lab_summary(mean_completion_tokens=0)], 1, "mean_completion_tokens is 0, expected above 0"),
        ([lab_summary(problems=0)], 1, "problems is 0"),
        ([lab_summary(model_path="trio://x")], 1, "which training step?"),
        (
            [*PROBLEMS, SMALL | {"average_at_n": 0.5}],
            3,
            "states average = 0.5, but the problem records above give 0.375",
        ),
        ([PROBLEMS[0], PROBLEMS[0], SMALL], 2, "'0' is there a second time"),
        ([PROBLEMS[0], lab_problem(1, [0, 0]), SMALL], 2, "2 generations, but val_n is 4"),
        ([PROBLEMS[0], lab_problem(1, [0] * 4, generations=4), SMALL], 2, "generations is 4, expected a list"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_lab_files_name_the_line(tmp_path, records, line, says):
    path = write_lines(tmp_path / "aime25-base.jsonl", *records)
    with pytest.raises(DataError) as caught:
        read_result(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("field", ["val_n", "average_at_n", "pass_at_n", "format_rate", "mean_completion_tokens"])
def test_a_missing_field_of_a_summary_is_named(tmp_path, field):
    summary = lab_summary()
    del summary[field]
    with pytest.raises(DataError, match=rf"base\.jsonl:1: no field '{field}'"):
        read_result(write_lines(tmp_path / "base.jsonl", summary))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "base.jsonl: no records"),
        (b"{]\n", "base.jsonl:1: not valid JSON"),
        (b'{"type": "summary", "val_n": NaN}\n', "base.jsonl:1: not valid JSON (NaN is no JSON number)"),
        (b"\xff\xfe\n", "base.jsonl:1: not valid JSON ('utf-8' codec"),
        (b"[1]\n", "base.jsonl:1: the line is [1], not a JSON object"),
    ],
)
def test_what_is_no_json_lines_file_is_named(tmp_path, content, says):
    (tmp_path / "base.jsonl").write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_result(tmp_path / "base.jsonl")
    assert says in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"base\.jsonl: cannot be read \(No such file or directory\)"):
        read_result(tmp_path / "base.jsonl")


def test_our_summary_line_has_the_fields_that_the_labs_own_script_needs(tmp_path):
    path = write_result(tmp_path / "aime25-base.jsonl", make_protocol(), simulated_problems(1))
    ours = json.loads(path.read_text().splitlines()[-1])
    alone = read_result(write_lines(tmp_path / "base.jsonl", ours))  # as a summary of theirs
    assert {metric: alone.means[metric] for metric in ("average", "pass@12", "format", "tokens")} == {
        metric: read_result(path).means[metric] for metric in ("average", "pass@12", "format", "tokens")
    }
