from pathlib import Path
from typing import Any

import pytest

from gspo_ray.models import DEMO_MODEL, resolve_model

SHARED_DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real data sets are not at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(resolve_model(DEMO_MODEL))
