"""The READMEs' tables say what the code says. `python -m tests.unit.test_readme` writes them anew."""

import ast
import re
from pathlib import Path

from gspo_ray.tracking.metrics import METRICS

ROOT = Path(__file__).parents[2]
README, MAP = ROOT / "README.md", ROOT / "gspo_ray" / "README.md"


def phrase(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`*])[.:] (?=[A-Z`])", text)[0].rstrip(".")


def module_map() -> str:
    lines = ["| file | phrase |", "| --- | --- |"]
    modules = sorted((ROOT / "gspo_ray").rglob("*.py"), key=lambda p: (p.parent != ROOT / "gspo_ray", str(p)))
    for path in modules:
        if path.name != "__init__.py" or path.parent.name == "config":
            assert phrase(path), f"{path} has no docstring"
            lines.append(f"| `{path.relative_to(ROOT / 'gspo_ray')}` | {phrase(path)} |")
    return "\n".join(lines) + "\n"


def glossary() -> str:
    rows = [f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in METRICS.items()]
    return "\n".join(["| name | meaning |", "| --- | --- |", *rows]) + "\n"


def tables() -> dict[Path, str]:
    """Each file with its generated table in the place of the one between the markers."""
    texts = {}
    for path, table in ((README, glossary()), (MAP, module_map())):
        head, begin, rest = path.read_text(encoding="utf-8").partition("<!-- generated -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        assert begin, f"{path} has no place for its table"
        assert end, f"{path} has no end of its table"
        texts[path] = head + begin + table + end + tail
    return texts


def test_the_glossary_and_the_map_are_those_of_the_code() -> None:
    for path, text in tables().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tests.unit.test_readme"


def test_no_placeholder_is_left() -> None:
    assert "@@" not in README.read_text(encoding="utf-8")


if __name__ == "__main__":
    for file, new in tables().items():
        file.write_text(new, encoding="utf-8")
