"""`gspo-ray eval` with the real engine: killed in the middle, started again, and the same to the last bit."""

import json
import signal

import pytest

from tests.e2e.conftest import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

# Four sequences at a time: one problem after the other, so that there is a middle.
PROTOCOL: tuple[str, ...] = ("--config", "configs/demo.yaml", "--eval.samples", "4", "--eval.max_problems", "10")
PROTOCOL += ("--rollout.engine.max_num_seqs", "4")


def records(path, kind):
    return [r for r in map(json.loads, path.read_text().splitlines()) if r["type"] == kind]


@pytest.fixture(scope="module")
def whole(cli, tmp_path_factory):
    """The base model on ten held-out sums, without interruption."""
    out = tmp_path_factory.mktemp("eval") / "base.jsonl"
    assert cli.run("eval", *PROTOCOL, "--out", str(out)) == 0, cli.log.read_text()[-3000:]
    return out


def test_an_evaluation_ends_with_numbers_intervals_and_no_process(cli, whole):
    (summary,) = records(whole, "summary")
    assert (summary["problems"], summary["generations"], summary["failed_problems"]) == (10, 40, [])
    low, high = summary["intervals_95"]["average_at_n"]
    assert 0 <= low <= summary["average_at_n"] <= high <= 1
    assert summary["protocol"]["adapter_sha256"] is None
    output = cli.log.read_text()
    assert "10 problems x 4 samples" in output
    assert "avg@4" in output
    assert cli.left_behind() == []


def test_killed_and_started_again_it_ends_the_same(cli, whole, tmp_path):
    out = tmp_path / "cut.jsonl"
    process = cli.start("eval", *PROTOCOL, "--out", str(out))
    try:
        wait_for(lambda: out.exists() and len(records(out, "problem")) >= 2, 700, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    finally:
        process.kill()
    assert 2 <= len(records(out, "problem")) < 10
    assert cli.left_behind() == []
    assert cli.run("eval", *PROTOCOL, "--out", str(out), "--base", str(whole)) == 0, cli.log.read_text()[-3000:]
    (again,), (once,) = records(out, "summary"), records(whole, "summary")
    difference = again.pop("comparison")["differences"]["average"]
    assert difference["value"] == 0.0
    assert {k: v for k, v in again.items() if k != "clock"} == {k: v for k, v in once.items() if k != "clock"}
    assert again["clock"]["attempts"] == 2

    def answers(path):
        return sorted(
            (r["problem_id"], [(s["seed"], s["text"]) for s in r["samples"]]) for r in records(path, "problem")
        )

    assert answers(out) == answers(whole)
    assert "undecidable: avg@4" in cli.log.read_text()


def test_bad_input_is_one_line(fresh_cli, tmp_path):
    assert fresh_cli.run("eval", "--adapter", str(tmp_path), "--out", str(tmp_path / "x.jsonl")) == 2
    (line,) = fresh_cli.log.read_text().splitlines()
    assert line.startswith("error: ")
    assert "holds no adapter" in line
