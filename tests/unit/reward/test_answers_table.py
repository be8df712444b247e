"""The documented decisions are what the code does: each row of ANSWERS.md is judged."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from gspo_ray.reward.verify import judge
from gspo_ray.types import Outcome

TABLES = Path(__file__).parents[3] / "gspo_ray" / "reward" / "ANSWERS.md"
OUTCOMES = {"yes": Outcome.CORRECT, "no": Outcome.WRONG, "not gradable": Outcome.ERROR}


class Row(NamedTuple):
    line: int
    gold: str
    answer: str
    verdict: str


def rows() -> list[Row]:
    found = []
    for number, line in enumerate(TABLES.read_text(encoding="utf-8").split("\n"), start=1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            gold, answer = (cell[1:-1].replace(r"\|", "|") for cell in cells[:2])
            found.append(Row(number, gold, answer, cells[2]))
    return found


ROWS = rows()


def test_every_line_of_the_tables_is_a_case() -> None:
    lines = TABLES.read_text(encoding="utf-8").split("\n")
    heads = sum(line.startswith("| gold ") for line in lines)
    assert heads == 10
    assert len(ROWS) == sum(line.startswith("|") for line in lines) - 2 * heads
    assert {row.verdict for row in ROWS} == set(OUTCOMES)


@pytest.mark.parametrize("row", ROWS, ids=[f"line {row.line}: {row.gold} / {row.answer}" for row in ROWS])
def test_the_table_tells_the_truth(row: Row) -> None:
    assert judge(f"So it is \\boxed{{{row.answer}}}.", row.gold).outcome is OUTCOMES[row.verdict]
