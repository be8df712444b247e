import pytest
from matplotlib.figure import Figure

from gspo_ray.analyse import progress
from gspo_ray.analyse.progress import plot_progress
from gspo_ray.analyse.study import build_study, read_study
from tests.unit.analyse.images import png_size
from tests.unit.analyse.test_study import evaluated
from tests.unit.evaluation.factories import lab_summary, write_lines, write_published


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The figure that is saved, drawn once."""
    figures: list[Figure] = []

    def keep(*size, **options):
        figures.append(original(*size, **options))
        return figures[-1]

    original = progress.new_figure
    monkeypatch.setattr(progress, "new_figure", keep)

    def draw(study, title="a study"):
        plot_progress(study, tmp_path / "progress.png", title=title, dpi=60)
        return figures[-1]

    return draw


def test_the_published_table_gives_its_figure(drawn, tmp_path):
    figure = drawn(read_study(write_published(tmp_path)))
    accuracy, output, twin = figure.axes
    heights = [round(bar.get_height() * 360) for bar in accuracy.containers[0]]
    assert heights == [147, 148, 136, 126, 125, 122]  # base: the mean of 148 and 146
    hatched = [bool(bar.get_hatch()) for bar in accuracy.containers[0]]
    assert hatched == [False, True, False, False, False, False]
    assert [text.get_text() for text in accuracy.get_xticklabels()] == ["Base", "20", "40", "60", "80", "100"]
    assert accuracy.get_ylim() == (0.0, 1.08)
    assert list(output.get_lines()[0].get_ydata())[-1] == 0.9944
    assert twin.get_ylim()[1] == 1.08 * 8000  # the next 1000 above the highest interval, 7,370
    assert png_size(tmp_path / "progress.png") == (660, 294)


def test_single_runs_of_the_base_are_shown_as_spread(drawn, tmp_path):
    accuracy = drawn(read_study(write_published(tmp_path))).axes[0]
    circles = [line for line in accuracy.get_lines() if line.get_marker() == "o"]
    assert [
        sorted(round(360 * y) for y in circles[0].get_ydata()),
        sorted(round(30 * y) for y in circles[1].get_ydata()),
    ] == [
        [146, 148],
        [17, 20],
    ]


def test_no_label_lies_on_another(drawn):
    study = build_study(
        [evaluated(), evaluated(seed=2), *(evaluated(step, shift=step / 80) for step in range(20, 120, 20))]
    )
    figure = drawn(study, title="A title of some length, to be on the safe side")
    figure.canvas.draw()  # places texts in pixels of the figure's own resolution
    renderer = figure.canvas.get_renderer()
    texts = [t for axes in figure.axes for t in (*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title)]
    axises = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_visible()]
    texts += [t for axis in axises for t in axis.get_ticklabels()]
    texts += [t for axes in figure.axes if axes.get_legend() for t in axes.get_legend().get_texts()]
    texts += figure.texts
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text() and t.get_visible()]
    for index, (text, box) in enumerate(boxes):
        for other_text, other in boxes[index + 1 :]:
            assert not box.overlaps(other), f"{text!r} lies on {other_text!r}"
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, f"{text!r} leaves the figure"


@pytest.mark.parametrize(
    "results",
    [
        lambda: [evaluated(n=1), evaluated(5, n=1)],
        lambda: [evaluated(), *(evaluated(step) for step in range(5, 80, 5))],
        lambda: [evaluated(boxed=1.0, shift=30.0), evaluated(5, boxed=1.0, shift=30.0)],  # everything right
        lambda: [evaluated(shift=-30.0, boxed=0.0), evaluated(5, shift=-30.0, boxed=0.0)],  # nothing right
    ],
    ids=["one sample", "15 checkpoints", "all right", "all wrong"],
)
def test_extremes_are_drawn_too(drawn, results, tmp_path):
    drawn(build_study(results()))
    assert png_size(tmp_path / "progress.png")[1] == 294


def test_lengths_without_an_interval_are_drawn_without_one(drawn, tmp_path):
    base = write_lines(tmp_path / "base.jsonl", lab_summary(max_tokens=None))
    step = write_lines(tmp_path / "step20.jsonl", lab_summary(max_tokens=None, average_at_n=0.5))
    twin = drawn(read_study([base, step])).axes[2]
    assert not twin.containers
