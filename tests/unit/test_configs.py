"""The configs that this repository hands out."""

from pathlib import Path

import pytest

from gspo_ray.config_io import dump_config, load_config

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def test_the_demo_is_among_them() -> None:
    assert "demo.yaml" in [path.name for path in CONFIGS]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_loads_and_resolves(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(dump_config(config), encoding="utf-8")
    assert load_config(resolved) == config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_is_short(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.split("#")[0].strip()]
    assert len(lines) < 40
