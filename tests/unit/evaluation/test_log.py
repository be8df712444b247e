import json
import random
from itertools import count

import pytest

from gspo_ray.errors import DataError
from gspo_ray.evaluation.log import EvalLog, read_log
from gspo_ray.evaluation.records import DataManifest, FailedRecord, ProblemRecord
from gspo_ray.evaluation.summary import summarise
from gspo_ray.types import SamplingParams
from tests.unit.evaluation.factories import make_problem, make_protocol, simulated_problems, write_lines

PROTOCOL = make_protocol(data=DataManifest(name="toy", sha256="d", problems=6), samples_per_problem=4)
PROBLEMS = simulated_problems(1, problems=6, n=4)
FAILED = FailedRecord(problem_id="toy-4", error="the engine died")
RECORDS: list[ProblemRecord | FailedRecord] = [*PROBLEMS[:4], FAILED, PROBLEMS[5]]


def evaluate(path, records, *, protocol=PROTOCOL, **options):
    """What a runner does: skip what is there, add the rest, finish."""
    with EvalLog(path, protocol, device="cpu", gpus=0, **options) as log:
        for record in records:
            if not log.is_done(record.problem_id):
                log.add(record)
        return log.finish(summarise(protocol, log.content.problems.values(), log.content.failed, where=str(path)))


def deterministic(path):
    """The records without what a wall clock says, in an order of their own."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{key: record[key] for key in record if key != "clock"} for record in records]
    return sorted(json.dumps(record) for record in kept if record["type"] != "attempt")


def killed_after(whole, kept_bytes, path):
    path.write_bytes(whole.read_bytes()[:kept_bytes])
    return path


def test_a_file_reads_back_as_it_was_written(tmp_path):
    summary = evaluate(tmp_path / "eval.jsonl", RECORDS)
    content = read_log(tmp_path / "eval.jsonl")
    assert content.protocol.to_json() == json.loads(json.dumps(PROTOCOL.to_json()))
    assert list(content.problems.values()) == [*PROBLEMS[:4], PROBLEMS[5]]
    assert content.failed == {"toy-4": FAILED}
    assert content.missing == 0
    assert content.summary == json.loads(json.dumps(summary))


def test_killed_at_any_byte_and_started_again_it_ends_with_the_same_records(tmp_path):
    whole = tmp_path / "whole.jsonl"
    evaluate(whole, RECORDS)
    size = whole.stat().st_size
    for kept in [0, 1, 40, *random.Random(1).sample(range(size), 40), size - 1]:
        path = killed_after(whole, kept, tmp_path / f"cut-{kept}.jsonl")
        evaluate(path, RECORDS)
        assert deterministic(path) == deterministic(whole), f"killed after {kept} bytes"


def test_the_order_in_which_problems_finish_changes_no_bit_of_the_summary(tmp_path):
    first = evaluate(tmp_path / "a.jsonl", RECORDS)
    for seed in range(3):
        shuffled = random.Random(seed).sample(RECORDS, len(RECORDS))
        other = evaluate(tmp_path / f"{seed}.jsonl", shuffled)
        assert json.dumps({**other, "clock": None}) == json.dumps({**first, "clock": None})


def test_a_problem_is_on_disk_when_add_returns(tmp_path):
    path = tmp_path / "eval.jsonl"
    log = EvalLog(path, PROTOCOL, device="cpu", gpus=0)
    log.add(PROBLEMS[0])
    assert list(read_log(path).problems) == ["toy-0"]
    log.close()


def test_the_cost_of_killed_attempts_is_counted_to_their_last_record(tmp_path):
    path, ticks = tmp_path / "eval.jsonl", count(start=100.0, step=10.0)  # every look at the clock: 10 s later
    with EvalLog(path, PROTOCOL, device="cuda", gpus=2, clock=lambda: next(ticks)) as log:
        log.add(PROBLEMS[0])
        log.add(PROBLEMS[1])  # 20 s, then killed
    with EvalLog(path, PROTOCOL, device="cuda", gpus=4, clock=lambda: next(ticks)) as log:
        for record in RECORDS[2:]:
            log.add(record)  # 40 s
        summary = summarise(PROTOCOL, log.content.problems.values(), log.content.failed, where="")
        clock = log.finish(summary)["clock"]  # 50 s
    assert (clock["attempts"], clock["wall_seconds"], clock["gpu_seconds"]) == (2, 70.0, 2 * 20 + 4 * 50)


def test_a_failed_problem_is_not_tried_again_unless_asked(tmp_path):
    path = tmp_path / "eval.jsonl"
    evaluate(path, RECORDS)
    with EvalLog(path, PROTOCOL, device="cpu", gpus=0) as log:
        assert log.is_done("toy-4")
    summary = evaluate(path, PROBLEMS, retry_failed=True)
    assert (summary["problems"], summary["failed_problems"]) == (6, [])
    content = read_log(path)
    assert len(content.problems) == 6
    assert content.failed == {}
    assert content.summary is not None
    assert content.summary["problems"] == 6  # the last one counts


def test_a_finished_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "eval.jsonl"
    summary = evaluate(path, RECORDS)
    before = path.read_bytes()
    with EvalLog(path, PROTOCOL, device="cpu", gpus=0) as log:
        assert log.content.is_complete
        assert log.content.summary == json.loads(json.dumps(summary))
    assert path.read_bytes() == before


def test_a_second_record_of_a_problem_is_a_programming_error(tmp_path):
    with EvalLog(tmp_path / "eval.jsonl", PROTOCOL, device="cpu", gpus=0) as log:
        log.add(PROBLEMS[0])
        with pytest.raises(ValueError, match="toy-0"):
            log.add(PROBLEMS[0])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sampling": SamplingParams(max_tokens=64)}, "sampling.max_tokens = 8192, not 64"),
        ({"seed": 43}, "seed = 42, not 43"),
        ({"adapter_sha256": "a" * 64}, "adapter_sha256 = None, not 'aaa"),
        ({"data": DataManifest(name="toy", sha256="e", problems=6)}, "data.sha256 = 'd', not 'e'"),
        ({"prompt": {"template": "{question}?"}}, "prompt."),
        ({"code_version": "0.2.0"}, "code_version = '0.1.0', not '0.2.0'"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_another_protocol_does_not_continue_a_file(tmp_path, changes, says):
    path = tmp_path / "eval.jsonl"
    evaluate(path, RECORDS)
    before = path.read_bytes()
    other = make_protocol(**{"data": PROTOCOL.data, "samples_per_problem": 4} | changes)
    with pytest.raises(DataError, match="cannot be continued") as caught:
        EvalLog(path, other, device="cpu", gpus=0)
    assert says in str(caught.value)
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_left_alone(tmp_path):
    path = write_lines(tmp_path / "train.jsonl", {"question": "1+1?"})
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"train\.jsonl:1: not the header of a result file"):
        EvalLog(path, PROTOCOL, device="cpu", gpus=0)
    assert path.read_bytes() == before


def test_a_folder_is_no_result_file(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        EvalLog(tmp_path, PROTOCOL, device="cpu", gpus=0)


def test_two_evaluations_do_not_write_one_file(tmp_path):
    path = tmp_path / "eval.jsonl"
    with EvalLog(path, PROTOCOL, device="cpu", gpus=0), pytest.raises(DataError, match="written by another"):
        EvalLog(path, PROTOCOL, device="cpu", gpus=0)
    EvalLog(path, PROTOCOL, device="cpu", gpus=0).close()  # the lock is gone


CLOCK = {"clock": {"attempt": 1, "elapsed_s": 1.0}}
HEADER = {"type": "header", "format": "gspo-ray-eval/1", "protocol": PROTOCOL.to_json()}
ATTEMPT = {"type": "attempt", "started_at": "", "device": "cpu", "gpus": 0}
PROBLEM = PROBLEMS[0].to_json() | CLOCK


def without(record, *path):
    copy = json.loads(json.dumps(record))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copy


@pytest.mark.parametrize(
    ("records", "line", "says"),
    [
        ([HEADER | {"format": "gspo-ray-eval/0"}], 1, "not the header"),
        ([without(HEADER, "protocol")], 1, "no field 'protocol'"),
        ([without(HEADER, "protocol", "sampling", "top_p")], 1, "no field 'protocol.sampling.top_p'"),
        ([HEADER, ATTEMPT, PROBLEM, PROBLEM], 4, "'toy-0' is there a second time"),
        ([HEADER, ATTEMPT, PROBLEM | {"samples": PROBLEM["samples"][:3]}], 3, "3 samples, the header says 4"),
        ([HEADER, ATTEMPT, without(PROBLEM, "samples", 1, "formatted")], 3, "no field 'samples[1].formatted'"),
        ([HEADER, ATTEMPT, without(PROBLEM, "clock")], 3, "no field 'clock'"),
        ([HEADER, PROBLEM], 2, "clock.attempt is 1, after 0 attempt lines"),
        ([HEADER, {"type": "note"}], 2, "unknown type 'note'"),
        ([HEADER, {"problem_id": "x"}], 2, "no field 'type'"),
        ([HEADER, []], 2, "not a JSON object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_line_is_named(tmp_path, records, line, says):
    path = write_lines(tmp_path / "eval.jsonl", *records)
    with pytest.raises(DataError) as caught:
        read_log(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("outcome", "right", 'samples[0].outcome is "right", expected one of correct, wrong'),
        ("completion_tokens", -1, "samples[0].completion_tokens is -1, expected a whole number, at least 0"),
        ("completion_tokens", True, "samples[0].completion_tokens is true"),
        ("formatted", 1, "samples[0].formatted is 1, expected true or false"),
        ("answer", 7, "samples[0].answer is 7, expected text"),
    ],
)
def test_a_bad_sample_is_named(tmp_path, field, value, says):
    bad = json.loads(json.dumps(PROBLEM))
    bad["samples"][0][field] = value
    path = write_lines(tmp_path / "eval.jsonl", HEADER, ATTEMPT, bad)
    with pytest.raises(DataError) as caught:
        read_log(path)
    assert f"{path}:3: {says}" in str(caught.value)


def test_more_problems_than_the_set_has_are_refused(tmp_path):
    records = [PROBLEM | {"problem_id": f"p{number}"} for number in range(7)]
    path = write_lines(tmp_path / "eval.jsonl", HEADER, ATTEMPT, *records)
    with pytest.raises(DataError, match="1 problems more than the 6 of its set"):
        read_log(path)


def test_only_the_last_line_may_be_torn(tmp_path):
    path = tmp_path / "eval.jsonl"
    evaluate(path, RECORDS)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:-20])
    assert len(read_log(path).problems) == 1
    path.write_text("".join(lines[:3]) + lines[3][:-20] + "\n" + lines[4])
    with pytest.raises(DataError, match=r"eval.jsonl:4: not valid JSON"):
        read_log(path)


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
    path = tmp_path / "eval.jsonl"
    odd = make_problem("toy-0", "cwcn", question="one\u2028two")
    with EvalLog(path, PROTOCOL, device="cpu", gpus=0) as log:
        log.add(odd)
    assert read_log(path).problems["toy-0"] == odd
