"""The README's tables say what the code says."""

from pathlib import Path

from gspo_ray.tracking.metrics import METRICS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_glossary_is_the_table_of_metric_names():
    rows = [line for line in README.splitlines() if line.startswith("| `") and "/" in line.split("`")[1]]
    glossary = [row for row in rows if row.split("`")[1] in METRICS]
    assert glossary == [f"| `{name}` | {meaning} |" for name, meaning in METRICS.items()]


def test_the_map_names_every_module_once():
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "gspo_ray").rglob("*.py") if path.name != "__init__.py"}
    assert all(README.count(f"| `{module}` |") == 1 for module in modules)
    assert README.count("| `gspo_ray/") == len(modules)


def test_no_placeholder_is_left():
    assert "@@" not in README
