"""`gspo-ray bench learner` from the command line to the table, processes of its own included."""

import json

import pytest

from gspo_ray.bench import learner
from gspo_ray.bench.case import Limit, Measurement
from gspo_ray.bench.learner import Row, run_bench
from gspo_ray.bench.report import as_json
from gspo_ray.cli import main as cli
from tests.unit.bench.conftest import make_case


@pytest.fixture(autouse=True)
def bench_alone(monkeypatch):
    monkeypatch.setattr(cli, "COMMANDS", ("bench",))


@pytest.fixture
def config(tmp_path, tiny_model):
    path = tmp_path / "tiny.yaml"
    path.write_text(
        f"model: {{path: {tiny_model}, dtype: float32, lora: {{rank: 4, alpha: 8}}}}\n"
        "learner: {micro_batch_tokens: 512, cpu_threads: 1}\ncluster: {device: cpu}\n"
    )
    return str(path)


def test_ours_and_the_plain_way_side_by_side(config, tmp_path, capsys):
    words = ["--config", config, "--batch", "additions", "--repeats", "1", "--variants", "ours", "plain"]
    out = tmp_path / "bench.json"
    assert cli.main(["bench", "learner", *words, "--json", str(out), "--profile"]) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    ours, plain = report["variants"]["ours"], report["variants"]["plain"]
    assert report["batch"]["useful_tokens"] == 64 * 88 + report["batch"]["completion_tokens"]
    assert ours["useful_tokens_per_second"] == report["batch"]["useful_tokens"] / ours["seconds"]
    assert ours["computed_tokens"] < report["batch"]["useful_tokens"] < plain["computed_tokens"]
    assert ours["gradient_error"] < 1e-5
    assert plain["gradient_error"] is None
    assert ours["against_plain"] == plain["seconds"] / ours["seconds"]
    assert ours["share_of_limit"] == ours["flops"] / ours["seconds"] / report["limit"]["flops_per_second"]
    assert 0 <= ours["peak_above_model_bytes"] < ours["peak_bytes"]
    printed = capsys.readouterr().out
    assert "ours: packed rows, one copy of a prompt, no logits; " in printed
    assert "times the speed" in printed
    assert "aten::mm" in printed


def test_what_does_not_fit_into_memory_is_said_and_the_others_go_on(monkeypatch, tiny_model):
    """600 MB hold the libraries and the tiny model, and not the logits."""
    groups = [([1, 2], [[3] * 20000])]
    limit = Limit(flops_per_second=1.0, by_shape={}).model_dump()
    own = learner.in_own_process
    monkeypatch.setattr(learner, "in_own_process", lambda *args: limit if args[1] == learner.LIMIT else own(*args))
    case = make_case(tiny_model, groups=groups, micro_batch_tokens=10**6)
    result = run_bench(case, batch="long", variants=["plain"], rounds=2, profile=False, free_bytes=lambda: 600 * 2**20)
    (row,) = result.rows
    assert len(row.passes) == 1
    assert row.failure == "does not fit into memory"
    assert as_json(result)["variants"]["plain"]["failure"] == row.failure


def test_numbers_are_medians_over_the_rounds(monkeypatch, tiny_model):
    seconds = iter([1.0, 10.0, 3.0, 20.0, 2.0, 30.0])
    order = []

    def measured(case, variant, folder):
        order.append(variant)
        if variant == learner.LIMIT:
            return Limit(flops_per_second=float(len(order)), by_shape={}).model_dump()
        return Measurement(variant=variant, seconds=next(seconds), flops=6.0).model_dump()

    monkeypatch.setattr(learner, "in_own_process", measured)
    monkeypatch.setattr(learner, "load_file", lambda path: {})
    monkeypatch.setattr(learner, "relative_error", lambda found, wanted: 0.0)
    case = make_case(tiny_model)
    result = run_bench(case, batch="x", variants=["ours", "plain"], rounds=3, profile=False)
    assert order == ["limit", "ours", "plain"] * 3
    assert [row.seconds for row in result.rows] == [2.0, 20.0]
    assert result.rows[0].flops_per_second == 3.0
    assert result.limit.flops_per_second == 7.0  # the best of the rounds


def test_a_process_that_fails_is_reported_with_what_it_wrote(tmp_path):
    case = make_case(str(tmp_path / "nothing"))
    with pytest.raises(learner.LearnerError, match=r"limit: .*cannot be loaded"):
        run_bench(case, batch="x", variants=["ours"], rounds=1, profile=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--variants", "best"], "--variants 'best' is none of ours, repeated_prompts"),
        (["--repeats", "0"], "must be at least 1"),
        (["--sizes", "4b"], "--sizes belongs to --gpu"),
        (["--gpu", "--sizes", "70b"], "--sizes '70b' is none of 0.6b, 4b, 8b"),
        (["--batch", "none.jsonl"], "neither a file nor one of"),
        (["--learner.micro_batch", "3"], "micro_batch"),
    ],
)
def test_a_mistake_ends_with_one_line(config, capsys, words, message):
    assert cli.main(["bench", "learner", "--config", config, *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error


def test_a_row_that_failed_once_has_failed():
    row = Row("plain", [Measurement(variant="plain"), Measurement(variant="plain", failure="no")])
    assert row.failure == "no"
