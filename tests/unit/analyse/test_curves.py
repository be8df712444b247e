import json
import math

import numpy as np
import pytest

from gspo_ray.analyse.curves import PANELS, plot_curves, read_curves, running_mean
from gspo_ray.errors import DataError
from gspo_ray.tracking.metrics import METRICS
from tests.unit.analyse.images import png_size


def write_metrics(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def steps(count, **series):
    """Step i has series[name](i) for every name, with "__" for "/"."""
    return [
        {"step": step, "time": 0.0, "notes": [], **{name.replace("__", "/"): f(step) for name, f in series.items()}}
        for step in range(1, count + 1)
    ]


def test_every_drawn_metric_is_one_that_runs_log():
    drawn = {series.metric for panel in PANELS for series in panel.series}
    drawn |= {name for panel in PANELS for name in panel.band or ()}
    assert drawn - METRICS.keys() == set()


def test_series_are_read_with_gaps_where_a_step_has_no_number(tmp_path):
    records = steps(3, reward__mean=lambda i: i / 10)
    records[1]["gspo/clip_frac"] = 0.5
    records[2]["reward/mean"] = None
    found_steps, curves = read_curves(write_metrics(tmp_path / "metrics.jsonl", records))
    assert list(found_steps) == [1, 2, 3]
    assert list(curves["reward/mean"][:2]) == [0.1, 0.2]
    assert math.isnan(curves["reward/mean"][2])
    assert [math.isnan(value) for value in curves["gspo/clip_frac"]] == [True, False, True]


@pytest.mark.parametrize("count", [1, 200])
def test_every_panel_together_makes_a_figure(tmp_path, count):
    everything = {name.replace("/", "__"): lambda i: 0.5 + 0.4 * math.sin(i) for name in METRICS}
    path = write_metrics(tmp_path / "metrics.jsonl", steps(count, **everything))
    plot_curves(path, tmp_path / "curves.png", title="a run", dpi=50)
    width, height = png_size(tmp_path / "curves.png")
    assert (width, height) == (520, round(50 * (2.5 * math.ceil(len(PANELS) / 2) + 0.7)))


def test_absent_series_leave_out_their_panels(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", steps(4, reward__mean=lambda i: i / 4, time__train_s=float))
    plot_curves(path, tmp_path / "curves.png", title="a run", dpi=50)
    assert png_size(tmp_path / "curves.png") == (520, 160)  # one row


def test_a_series_without_one_number_is_absent(tmp_path):
    records = steps(4, reward__mean=lambda i: i / 4, gspo__clip_frac=lambda i: None)
    plot_curves(write_metrics(tmp_path / "metrics.jsonl", records), tmp_path / "curves.png", title="", dpi=50)
    assert png_size(tmp_path / "curves.png") == (520, 160)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "metrics.jsonl: no step was logged"),
        ('{"step": 1, "other/thing": 1.0}\n', "metrics.jsonl: none of the metrics that are drawn"),
        ('{"step": 1}\n{"step": \n{"step": 3}\n', "metrics.jsonl:2: not valid JSON"),
        ('{"reward/mean": 1.0}\n', "metrics.jsonl:1: no field 'step'"),
        ('{"step": 1, "reward/mean": "high"}\n', 'metrics.jsonl:1: reward/mean is "high", expected a finite number'),
    ],
)
def test_bad_metrics_name_the_line(tmp_path, text, says):
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(DataError) as caught:
        plot_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png", title="", dpi=50)
    assert says in str(caught.value)
    assert not (tmp_path / "curves.png").exists()


def test_a_line_torn_by_a_kill_is_left_out(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl", steps(3, reward__mean=float))
    path.write_text(path.read_text() + '{"step": 4, "rew')
    assert len(read_curves(path)[0]) == 3


def test_the_running_mean_takes_what_is_there_and_keeps_gaps():
    values = np.array([1.0, 2.0, math.nan, 4.0, 5.0])
    # centred over three: (1+2)/2, (1+2)/2, gap, (4+5)/2, (4+5)/2
    smooth = running_mean(values, 3)
    assert list(smooth[[0, 1, 3, 4]]) == [1.5, 1.5, 4.5, 4.5]
    assert math.isnan(smooth[2])
    assert running_mean(values, 1) is values
