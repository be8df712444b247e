"""What README.md says, done: its example, its table, its counts and versions."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.conformance import replay
from tests.conformance.deviations import table
from tests.conformance.replay import FOLDER, load_cases

HERE = Path(__file__).parent
README = (HERE / "README.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_a_copy_of_replay_and_vectors_works_elsewhere(tmp_path: Path) -> None:
    shutil.copy(HERE / "replay.py", tmp_path)
    shutil.copytree(FOLDER, tmp_path / "vectors")
    trainer = "def loss(case):\n    return case['expected']['loss'], case['expected']['gradient']\n"
    (tmp_path / "my_trainer.py").write_text(trainer, encoding="utf-8")
    # -I -S: neither this repository nor an installed package can be imported.
    command = [sys.executable, "-I", "-S", "replay.py", "my_trainer:loss"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == [f"{len(load_cases())} agree, 0 differ"], done.stderr


def replayed(monkeypatch: pytest.MonkeyPatch, source: str, *flags: str) -> int:
    """The exit code of `replay.py` for a trainer with this source text."""
    monkeypatch.setitem(sys.modules, "replay", replay)
    trainer = types.ModuleType("my_trainer")
    exec(source, trainer.__dict__)
    monkeypatch.setitem(sys.modules, "my_trainer", trainer)
    monkeypatch.setattr(sys, "path", [*sys.path])  # main() adds to it
    monkeypatch.setattr(sys, "argv", ["replay.py", "my_trainer:loss_and_gradient", *flags])
    return replay.main()


def test_the_example_agrees_with_every_case_that_it_takes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replayed(monkeypatch, EXAMPLE) == 0
    wanted = {"variant": "gspo", "aggregation": "sequence_mean", "kl_coef": 0.0}
    taken = [case for case in load_cases() if wanted.items() <= case["settings"].items()]
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(taken)} agree, 0 differ"


@pytest.mark.parametrize(
    ("right", "wrong", "case", "finding"),
    [
        # N = 8, 4 rows are given: twice the gradient.
        ('case["divisor"]["num_sequences"]', "len(mask)", "degenerate_group_left_out", "cosine 1.0000, scale 2.0000"),
        # Cut at 1.0003 instead of 1.0004: s = 1.00035 has lost its gradient.
        ('1 + settings["eps_high"]', '1 + settings["eps_low"]', "clip_asymmetric_above", "error 1, cosine 0.0000"),
    ],
    ids=["divisor", "eps"],
)
def test_the_example_with_a_fault_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    right: str,
    wrong: str,
    case: str,
    finding: str,
) -> None:
    assert right in EXAMPLE
    assert replayed(monkeypatch, EXAMPLE.replace(right, wrong), "--float32", "--only", case) == 1
    printed = capsys.readouterr().out
    assert f"differs  {case}" in printed
    assert finding in printed


def test_nothing_replayed_is_not_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(monkeypatch, EXAMPLE, "--only", "no such case") == 1


def test_the_table_is_what_deviations_prints() -> None:
    assert table() in README


def test_the_counts_are_those_of_the_vectors() -> None:
    counts = [len(load_cases(kind)) for kind in ("loss", "advantages", "mismatch_weights")]
    assert (
        "{} cases of loss and gradient, {} of rewards to advantages, {} of mismatch weights".format(*counts) in README
    )


def test_one_version_of_trl_is_named() -> None:
    texts = [README, (HERE / "test_trl.py").read_text(encoding="utf-8")]
    assert len({version for text in texts for version in re.findall(r"(?:trl==|TRL )(\d+\.\d+\.\d+)", text)}) == 1
