"""`gspo-ray lab`: what is written and printed, exit codes, one line for a mistake."""

import json
from pathlib import Path

import pytest

from gspo_ray.cli import lab
from gspo_ray.cli import main as cli
from gspo_ray.lab import golden, update

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def lab_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "COMMANDS", ("lab",))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["objective"], {"cancellation", "clipping", "length_normalization", "is_identity", "advantages", "epsilon"}),
        (["update"], {"responses", "rewards", "advantages", "history", "learning_rate", "epsilon"}),
        (["online", "--seeds", "0", "--betas", "0", "0.5", "--rounds", "3"], {"runs", "device", "dtype"}),
        (["compare", "--batches", "10"], {"settings", "rollouts", "change", "lengths", "token_mean_spread"}),
        (["noise", "--samples", "200", "--lengths", "16", "64"], {"cells", "noise_limits", "published", "measured"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_experiment_writes_json_and_a_figure_and_prints_golden_values(words, keys, capsys):
    assert cli.main(["lab", *words, "--output", "out"]) == 0
    report = json.loads(Path("out", f"{words[0]}.json").read_text(encoding="utf-8"))
    assert keys | {"experiment", "scope", "torch", "checks"} <= set(report)
    assert all(set(check) == {"name", "golden", "ours", "agrees", "rule", "error"} for check in report["checks"])
    assert Path("out", f"{words[0]}.png").read_bytes()[:8] == PNG
    printed = capsys.readouterr()
    assert "golden values beside ours" in printed.out
    assert f"written: out/{words[0]}.json, out/{words[0]}.png" in printed.out
    assert printed.err == ""


def test_results_go_to_one_folder_by_default():
    assert cli.main(["lab", "update"]) == 0
    assert sorted(path.name for path in Path("lab-results").iterdir()) == ["update.json", "update.png"]


def test_a_missed_golden_value_is_printed_and_gives_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(update, "GOLDEN_PLATEAU_FLAT", 0.75)
    assert cli.main(["lab", "update"]) == 1
    printed = capsys.readouterr()
    assert "MISSED" in printed.out
    assert printed.err == "1 of 17 golden values are missed\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "the following arguments are required: NAME"),
        (["nothing"], "invalid choice: 'nothing'"),
        (["online", "--rounds", "1.5"], "--rounds takes whole numbers from 1 to 1000000, got 1.5"),
        (["online", "--rounds", "many"], "--rounds takes whole numbers from 1 to 1000000, got many"),
        (["online", "--groups", "0"], "--groups takes whole numbers from 1 to 1000000, got 0"),
        (["online", "--updates", "-3"], "--updates takes whole numbers from 1 to 1000000, got -3"),
        (["online", "--group-size", "1"], "--group-size takes whole numbers from 2 to 1000000, got 1"),
        (["online", "--betas", "0", "-1"], "--betas takes finite numbers of at least 0"),
        (["online", "--learning-rate", "0"], "--learning-rate takes finite numbers above 0"),
        (["online", "--epsilon", "1"], "--epsilon takes finite numbers above 0 and below 1, got 1"),
        (["online", "--round", "3"], "unexpected argument '--round'"),
        (["update", "more"], "unexpected argument 'more'"),
        (["candidates"], "--data DIR"),
        (["candidates", "--data", "nowhere"], "nowhere/train.jsonl: no such file"),
        (["compare", "--run", "nowhere"], "--run nowhere: no such folder or file"),
        (["noise", "--run", "nowhere"], "--run nowhere: no metrics.jsonl there"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert cli.main(["lab", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert says in printed.err
    assert list(Path().iterdir()) == []


def test_an_output_that_is_a_file_is_one_line_too(capsys):
    Path("taken").write_text("", encoding="utf-8")
    assert cli.main(["lab", "update", "--output", "taken"]) == 2
    assert capsys.readouterr().err == "error: --output taken: no folder can be made there (File exists)\n"


def test_every_experiment_has_help(capsys):
    for name in lab.LABS:
        with pytest.raises(SystemExit) as stop:
            cli.main(["lab", name, "--help"])
        assert stop.value.code == 0
        assert "--output DIR" in capsys.readouterr().out


def test_what_agreeing_means():
    assert golden.equal("", 1.0, 1.05, within=0.1).agrees is True
    assert golden.equal("", 1.0, 1.2, within=0.1).agrees is False
    assert golden.equal("", 1.0, float("nan"), within=0.1).agrees is False
    assert golden.at_least("", 0.8, 0.8).agrees is True
    assert golden.at_least("", 0.8, 0.79).agrees is False
    assert golden.in_spread("", 0.5, 0.6, low=0.4, high=0.7, of="").agrees is True
    assert golden.in_spread("", 0.5, 0.6, low=0.55, high=0.7, of="").agrees is False
    assert golden.shown("", 0.5, 0.6, why="").agrees is None
