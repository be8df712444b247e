"""docker/Dockerfile as data: its stages and their instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.unit.deploy.files import DOCKER


@dataclass
class Stage:
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, keyword: str) -> list[str]:
        return [value for word, value in self.instructions if word == keyword]


def stages() -> dict[str, Stage]:
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, value = line.split(maxsplit=1)
        if word == "FROM":
            base, name = value.split(" AS ")
            found[name] = Stage(base)
        else:
            found[list(found)[-1]].instructions.append((word, value))
    return found


def pip_commands(stage: Stage) -> list[str]:
    """Every command of its RUN lines that makes or fills the virtual environment."""
    commands = [command.strip() for run in stage.all("RUN") for command in run.split("&&")]
    return [command for command in commands if re.match(r"(pip|python -m venv) ", command)]
