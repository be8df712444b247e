import csv
import io
import re

import pytest

from gspo_ray.analyse.report import study_paragraphs, study_report
from gspo_ray.analyse.study import build_study, read_study
from gspo_ray.analyse.table import csv_table, markdown_table
from gspo_ray.errors import DataError
from gspo_ray.evaluation.records import DataManifest
from gspo_ray.evaluation.result_files import result_of
from tests.unit.evaluation.factories import (
    PUBLISHED,
    lab_summary,
    make_protocol,
    simulated_problems,
    write_lines,
    write_published,
    write_result,
)


def evaluated(step=None, *, seed=1, where="", failed=(), **simulation):
    """A result of the base (`step` None) or of a checkpoint."""
    adapter = {} if step is None else {"adapter_sha256": f"{step}" * 8, "adapter_step": step}
    protocol = make_protocol(seed=seed, samples_per_problem=simulation.get("n", 12), **adapter)
    problems = simulated_problems(1000 * seed + (step or 0), **simulation)
    return result_of(protocol, problems, failed, where=where or f"step{step}-{seed}.jsonl:1")


@pytest.fixture
def published(tmp_path):
    return read_study(write_published(tmp_path))


# The published table of agentic-rl-lab


def test_the_published_rows_come_out_as_they_went_in(published):
    rows = [row.split("|")[1:-1] for row in markdown_table(published).splitlines()[2:]]
    single = [row for row in rows if "mean of" not in row[0]]
    assert [row[0].strip(" *") for row in single] == [
        "Base, run 1",
        "Base, run 2",
        *(f"Step {step}" for step in (20, 40, 60, 80, 100)),
    ]
    for row, (correct, passed, boxed, tokens) in zip(single, PUBLISHED.values(), strict=True):
        assert row[2].strip() == f"{correct}/360"
        assert row[3].split(" (")[0].strip() == f"{100 * correct / 360:.1f} %"
        assert row[4].split(" (")[0].strip() == f"{100 * passed / 30:.1f} %"
        assert row[5].split(" (")[0].strip() == f"{100 * boxed:.1f} %"
        assert row[6].split(" (")[0].strip() == f"{tokens:,.0f}"


def test_the_published_rows_are_read_with_care(published):
    text = "\n".join(study_paragraphs(published))
    assert "no accuracy gain is shown, and no loss" in text
    assert "0 better, 0 worse, 5 undecidable" in text
    assert "better than the base" not in text
    assert "Format (share with a complete \\boxed{}) changed: higher at step 40, 60, 80 and 100" in text
    assert "47.1 % of the base, 99.4 % at step 100, +52.4 points" in text
    assert "Length changed: lower at step 80 and 100; 6,466 tokens of the base, 3,358 tokens at step 100" in text
    assert "avg@12 by 0.6 points, pass@12 by 10.0 points" in text  # two runs of the base
    assert "the 30 problems are counted, not the generations" in text
    assert "Holm" in text


def test_the_interval_of_a_summary_is_over_problems_and_not_over_generations(published):
    estimate = published.base.runs[0].estimate("average")
    # Wilson for 0.4111 of 30: centre (0.4111 + 3.8415/60) / (1 + 3.8415/30) = 0.4212, half 0.1662; of 360 half 0.0505
    assert estimate.low == pytest.approx(0.4212 - 0.1662, abs=2e-4)
    assert estimate.high == pytest.approx(0.4212 + 0.1662, abs=2e-4)


def test_the_best_checkpoint_is_the_one_of_the_rule(published):
    assert published.best.label == "Step 20"
    assert "| **Step 20** |" in markdown_table(published)
    assert markdown_table(published).count("**") == 2
    assert "highest avg@12 of the trained checkpoints" in published.best_rule


# Files with problem records


def test_a_real_gain_is_called_one_at_the_steps_that_show_it():
    study = build_study([evaluated(), evaluated(seed=2), evaluated(20), evaluated(40, shift=1.5)])
    text = "\n".join(study_paragraphs(study))
    assert "Accuracy (avg@12): better than the base at step 40. 1 better, 0 worse, 1 undecidable." in text
    assert "Highest: step 40" in text
    assert "bootstrap over problems" in text


def test_a_real_loss_is_called_one():
    text = "\n".join(study_paragraphs(build_study([evaluated(), evaluated(20, shift=-1.5), evaluated(40)])))
    assert "no gain is shown, and a loss at step 20" in text


def test_one_checkpoint_needs_no_correction_and_no_mark():
    study = build_study([evaluated(), evaluated(20, shift=1.5)])
    text = study_report(study, title="")
    assert study.best is None
    assert "Holm" not in text
    assert "Highest" not in text
    assert "**" not in text


def test_more_checkpoints_make_each_of_them_harder_to_show():
    few = build_study([evaluated(), evaluated(20, shift=0.7)])
    many = build_study([evaluated(), evaluated(20, shift=0.7), *(evaluated(step) for step in range(30, 90, 10))])
    one, corrected = (study.checkpoints[0].differences["average"] for study in (few, many))
    assert one.p_value == corrected.p_value
    assert one.direction == "higher"
    assert corrected.direction == "undecidable"
    assert "0 better" in "\n".join(study_paragraphs(many))


def test_many_named_steps_are_counted():
    steps = range(10, 110, 10)
    text = "\n".join(study_paragraphs(build_study([evaluated(), *(evaluated(step, shift=3.0) for step in steps)])))
    assert "better than the base at 10 of 10 checkpoints, the first of them step 10." in text


def test_repeated_runs_are_pooled_and_each_keeps_its_row():
    study = build_study([evaluated(), evaluated(20), evaluated(seed=2), evaluated(20, seed=2)])
    assert [(model.label, len(model.runs)) for model in study.models] == [("Base", 2), ("Step 20", 2)]
    labels = [line.split("|")[1].strip() for line in markdown_table(study).splitlines()[2:]]
    assert labels == [
        "Base, run 1",
        "Base, run 2",
        "Base, mean of 2",
        "Step 20, run 1",
        "Step 20, run 2",
        "Step 20, mean of 2",
    ]


def test_steps_are_in_order_of_their_numbers():
    study = build_study([evaluated(100), evaluated(20), evaluated(), evaluated(3)])
    assert [model.label for model in study.models] == ["Base", "Step 3", "Step 20", "Step 100"]


def test_failed_problems_are_named():
    study = build_study([evaluated(failed=("toy-30",)), evaluated(20)])
    assert "Base: 1 of 31 problems gave no result and are left out (toy-30)" in "\n".join(study_paragraphs(study))


def test_one_sample_a_problem_has_no_pass_at_more_and_no_vote():
    study = build_study([evaluated(n=1), evaluated(20, n=1)])
    text = study_report(study, title="")
    assert "avg@1" in text
    assert "maj@" not in text
    assert "pass@" not in text


def test_the_csv_has_every_number_of_the_study():
    study = build_study([evaluated(), evaluated(seed=2), evaluated(20), evaluated(40, shift=1.5)])
    rows = list(csv.DictReader(io.StringIO(csv_table(study))))
    assert [row["label"] for row in rows] == ["Base, run 1", "Base, run 2", "Base, mean of 2", "Step 20", "Step 40"]
    best = rows[-1]
    difference = study.checkpoints[-1].differences["average"]
    assert float(best["average"]) == study.checkpoints[-1].result.means["average"]
    assert float(best["average_change"]) == difference.value
    assert float(best["average_p_holm"]) == difference.p_adjusted
    assert (best["average_verdict"], best["best"], rows[0]["best"]) == ("better", "True", "False")
    assert float(best["average_low"]) < float(best["average"]) < float(best["average_high"])
    assert rows[0]["average_p"] == ""
    for metric in ("pass@2", "pass@4", "pass@8", "pass@12", "majority", "format", "truncated", "tokens"):
        assert float(best[metric]) >= 0


def test_the_same_files_give_the_same_text():
    results = [evaluated(), evaluated(20), evaluated(40)]
    assert study_report(build_study(results), title="a") == study_report(build_study(results[::-1]), title="a")


# Refusals


@pytest.mark.parametrize(
    ("results", "says"),
    [
        (lambda: [evaluated(20), evaluated(40)], "none of the 2 results is of the base model"),
        (lambda: [evaluated(), evaluated(seed=2)], "all 2 results are of the base model"),
        (
            lambda: [evaluated(), evaluated(20, where="a:1"), evaluated(20, where="b:1")],
            "b:1: the same evaluation as a:1",
        ),
        (lambda: [evaluated(), evaluated(20, n=8, where="b:1")], "b:1: samples_per_problem is 8, but 12 in stepNone-1"),
    ],
)
def test_what_is_no_study_is_refused(results, says):
    with pytest.raises(DataError, match=re.escape(says)):
        build_study(results())


def test_two_adapters_at_one_step_are_two_runs(tmp_path):
    paths = write_published(tmp_path)
    other = write_lines(tmp_path / "other-step20.jsonl", lab_summary(model_path="trio://other", average_at_n=0.3))
    with pytest.raises(DataError, match=r"other-step20\.jsonl:1: another adapter at step 20 than in"):
        read_study([*paths, other])


def test_val_n_must_be_one_and_the_same(tmp_path):
    base = write_lines(tmp_path / "base.jsonl", lab_summary())
    step = write_lines(tmp_path / "step20.jsonl", lab_summary(val_n=8, generations=240, average_at_n=0.2))
    with pytest.raises(DataError, match=r"step20\.jsonl:1: samples_per_problem is 8, but 12 in .*base\.jsonl:1"):
        read_study([base, step])


def test_a_folder_stands_for_its_result_files(tmp_path):
    small = make_protocol(data=DataManifest(name="toy", sha256="d", problems=10))
    write_result(tmp_path / "base.jsonl", small, simulated_problems(1, problems=10))
    adapter = make_protocol(data=small.data, adapter_sha256="a", adapter_step=7)
    write_result(tmp_path / "step-7.jsonl", adapter, simulated_problems(2, problems=10))
    assert [model.label for model in read_study([tmp_path]).models] == ["Base", "Step 7"]


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no \.jsonl file in this folder"):
        read_study([tmp_path])
