from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from gspo_ray.algo.record import StepRecord
from gspo_ray.tracking.console import ConsoleTracker
from gspo_ray.tracking.console_format import count, duration, fit, one_line, sparkline, step_columns
from gspo_ray.types import RunState, StepMetrics
from tests.unit.tracking.factories import make_group, make_step


def make_tracker(**options):
    out = StringIO()
    console = Console(file=out, **({"width": 120} | options))
    return ConsoleTracker(console, total_steps=20, sample_every=5), out


def test_a_step_is_one_line_with_its_numbers():
    tracker, out = make_tracker()
    tracker.log_step(make_step(3, 0.688))
    title, line = out.getvalue().strip("\n").splitlines()
    assert line.split()[:2] == ["3/20", "0.688"]
    for cell in ("██████··", "11%", "2%", "25%", "842", "13.2", "12%", "3.1e-04", "7.0e-06", "0.42", "24.1"):
        assert cell in line
    assert "12.0+0.3+10.6+1.2" in line
    assert "6m50s" in line  # 17 steps of 24.1 s are left
    assert "degenerate" not in title
    assert title.index("reward") == line.index("0.688")


def test_notes_and_verifier_trouble_stand_under_the_line():
    tracker, out = make_tracker()
    note = "the clip band is below the noise floor: " + "a long explanation " * 10
    tracker.log_step(make_step(1, notes=(note.strip(),), outcome__timeout_frac=0.03, outcome__error_frac=0.01))
    assert note.strip() in out.getvalue()  # unbroken
    assert (
        "3% of the verifications hit the time limit and were paid 0; 1% of the completions could not be judged"
        in out.getvalue()
    )


def test_missing_metrics_are_dashes():
    tracker, out = make_tracker()
    tracker.log_step(StepMetrics(step=1, values={"reward/mean": float("nan")}))
    tracker.log_step(StepMetrics(step=2, values={}))
    tracker.print_summary("finished")
    assert "2/20" in out.getvalue()


def test_a_terminal_gets_the_columns_that_fit():
    tracker, out = make_tracker(width=80, force_terminal=True, color_system=None)
    tracker.log_step(make_step(1, 0.25))
    assert all(len(line) <= 80 for line in out.getvalue().splitlines())
    assert "0.250" in out.getvalue()
    assert "24.1" in out.getvalue()
    assert [column.title for column in fit(step_columns(20), 10)] == ["step"]


@pytest.mark.parametrize(("step", "shown"), [(1, True), (2, False), (5, True)])
def test_samples_are_due_in_step_one_and_every_k_steps(step, shown):
    tracker, out = make_tracker()
    tracker.log_rollouts(StepRecord(step=step, groups_P=[make_group()]))
    assert ("What is 3 + 4?" in out.getvalue()) == shown


def test_model_text_is_shown_as_it_is():
    tracker, out = make_tracker()
    text = "[bold]7[/bold] [/nonsense] \x1b[31mred\nnext line \\boxed{7}"
    tracker.log_rollouts(StepRecord(step=1, groups_P=[make_group((text, "8"))]))
    shown = out.getvalue()
    assert "[bold]7[/bold] [/nonsense]" in shown
    assert "\x1b" not in shown
    assert "next line \\boxed{7}" in shown
    assert "correct, reward 1.00, read 7; 3 tokens, stop" in shown
    assert "wrong, reward 0.00" in shown


def test_mixed_groups_are_shown_first_and_unscored_ones_can_be():
    tracker, out = make_tracker()
    tracker.log_rollouts(
        StepRecord(
            step=1, groups_P=[make_group(("a", "b"), (1.0, 1.0), problem_id="same"), make_group(problem_id="mixed")]
        )
    )
    assert "mixed" in out.getvalue()
    tracker.log_rollouts(StepRecord(step=5, groups_P=[make_group(rewards=())]))
    assert "not scored" in out.getvalue()


def test_header_and_summary_say_where_things_are():
    tracker, out = make_tracker(width=60)
    path = "/a/very/long/path" * 8
    tracker.print_header("gspo-ray train: demo", {"model": "tiny", "stored in": path})
    for step in range(1, 6):
        tracker.log_step(make_step(step, 0.1 * step))
    tracker.log_checkpoint(RunState(step=5), path)
    tracker.warn("MLflow is [away]")
    tracker.print_summary("finished", fields={"adapter": path}, next_commands=("gspo-ray chat",))
    shown = out.getvalue()
    assert shown.count(path) == 3  # never broken over lines
    assert "0.100 (step 1) -> 0.400 (mean of steps 3-5), +0.300" in shown
    assert "2m00s for 5 steps: rollout 50%, reward 1%, train 44%, sync 5%" in shown
    assert "sampler 70 tokens/s, learner 472 tokens/s" in shown
    assert "! MLflow is [away]" in shown
    assert "gspo-ray chat" in shown


def test_formats():
    assert [duration(s) for s in (42, 425, 12000)] == ["42s", "7m05s", "3h20m"]
    assert [count(n) for n in (842, 9999, 12345, 2.5e6)] == ["842", "9999", "12.3k", "2.5M"]
    assert sparkline([0, 0.5, 1.0]) == "▁▅█"
    assert len(sparkline([0.5] * 1000)) == 40
    assert len(one_line("word " * 100, 80)) <= 80
    assert one_line("x" * 50 + "\\boxed{7}", 40).endswith("\\boxed{7}")
