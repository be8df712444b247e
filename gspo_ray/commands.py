"""Commands as the person who reads them can type them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def typed(command: str) -> str:
    """`command` with its program's path where the shell would not find it: the virtual environment is not active.

    Example: typed("gspo-ray train") == ".venv/bin/gspo-ray train" in the project's folder.
    """
    program, space, rest = command.partition(" ")
    beside_python = Path(sys.executable).with_name(program)
    if shutil.which(program) or not beside_python.exists():
        return command
    path = Path(os.path.relpath(beside_python))
    return f"{beside_python if path.parts[0] == '..' else path}{space}{rest}"
