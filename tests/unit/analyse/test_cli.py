import pytest

from gspo_ray.cli import main as cli
from tests.unit.analyse.images import png_size
from tests.unit.analyse.test_curves import steps, write_metrics
from tests.unit.evaluation.factories import lab_summary, write_lines, write_published


@pytest.fixture
def analyse(monkeypatch, capfd, tmp_path):
    """Exit code, stdout and stderr of `gspo-ray analyse WORDS`."""
    monkeypatch.setattr(cli, "COMMANDS", ("analyse",))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = cli.main(["analyse", *map(str, words)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def test_result_files_give_figure_table_and_words(analyse, tmp_path):
    code, out, err = analyse(*write_published(tmp_path), "--title", "AIME 2025", "--dpi", "60")
    assert (code, err) == (0, "")
    assert {path.name for path in (tmp_path / "analysis").iterdir()} == {"progress.png", "progress.md", "progress.csv"}
    text = (tmp_path / "analysis" / "progress.md").read_text()
    assert text.startswith("# AIME 2025\n\n|")
    assert "no accuracy gain is shown" in text
    assert text in out
    assert len((tmp_path / "analysis" / "progress.csv").read_text().splitlines()) == 1 + 8  # 7 files, 1 mean


def test_a_run_gives_its_curves_in_its_folder(analyse, tmp_path):
    run = tmp_path / "runs" / "demo"
    run.mkdir(parents=True)
    write_metrics(run / "metrics.jsonl", steps(3, reward__mean=lambda i: i / 3))
    code, out, err = analyse(run, "--dpi", "50")
    assert (code, out, err) == (0, f"written: {run}/curves.png\n", "")
    assert png_size(run / "curves.png") == (520, 160)


def test_the_output_folder_can_be_chosen(analyse, tmp_path):
    assert analyse(*write_published(tmp_path), "--output", tmp_path / "a" / "b", "--dpi", "40")[0] == 0
    assert (tmp_path / "a" / "b" / "progress.png").exists()


def written(path, **changes):
    return write_lines(path, lab_summary(**changes))


@pytest.mark.parametrize(
    ("prepare", "words", "says"),
    [
        (lambda d: None, [], "required: PATH"),
        (lambda d: None, ["no.jsonl"], "no.jsonl: cannot be read (No such file or directory)"),
        (lambda d: None, ["."], "no .jsonl file in this folder"),
        (lambda d: written(d / "base.jsonl"), ["base.jsonl", "--dpi", "0"], "--dpi is 0"),
        (lambda d: written(d / "base.jsonl"), ["base.jsonl", "--dpi", "x"], "--dpi: invalid int value: 'x'"),
        (lambda d: written(d / "base.jsonl"), ["base.jsonl", "--show"], "unexpected argument '--show'"),
        (lambda d: written(d / "base.jsonl"), ["base.jsonl"], "all 1 results are of the base model"),
        (lambda d: written(d / "step20.jsonl"), ["step20.jsonl"], "none of the 1 results is of the base model"),
        (lambda d: written(d / "base.jsonl", val_n=None), ["base.jsonl"], "base.jsonl:1: val_n is null"),
        (lambda d: written(d / "base.jsonl", format_rate=2), ["base.jsonl"], "base.jsonl:1: format_rate is 2"),
        (lambda d: (d / "base.jsonl").write_text("\n{bad\n\n"), ["base.jsonl"], "base.jsonl:2: not valid JSON"),
        (lambda d: (d / "base.jsonl").write_text('{"type": "problem"}\n'), ["base.jsonl"], "base.jsonl:1: no summary"),
        (lambda d: (d / "metrics.jsonl").write_text(""), ["."], "metrics.jsonl: no step was logged"),
        (lambda d: (d / "metrics.jsonl").write_text(""), [".", "x.jsonl"], ". is the folder of a run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(analyse, tmp_path, prepare, words, says):
    prepare(tmp_path)
    code, out, err = analyse(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err
    assert not (tmp_path / "analysis").exists()


def test_an_output_that_is_a_file_is_named(analyse, tmp_path):
    (tmp_path / "taken").write_text("")
    code, _, err = analyse(*write_published(tmp_path), "--output", "taken")
    assert code == 2
    assert "taken: File exists" in err
