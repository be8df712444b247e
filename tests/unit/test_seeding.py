"""Seeds are a pure function of their path, the same on every machine and in every process."""

import subprocess
import sys

import pytest

from gspo_ray.seeding import derive_seed

PINNED = {  # a change of these numbers breaks the resume of every run made before
    (0,): 1108721358,
    (0, "rollout", 1, 0): 821731654,
    (42, "data", 3): 1282276150,
}


@pytest.mark.parametrize("path", PINNED)
def test_seeds_are_pinned(path: tuple[int, ...]) -> None:
    assert derive_seed(*path) == PINNED[path]


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_seeds_do_not_depend_on_the_hash_seed_of_the_process(hash_seed: str) -> None:
    code = f"from gspo_ray.seeding import derive_seed; print([derive_seed(*path) for path in {list(PINNED)!r}])"
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == str(list(PINNED.values()))


def test_distinct_paths_give_distinct_seeds_of_31_bits() -> None:
    paths = [
        (seed, kind, step, k)
        for seed in range(3)
        for kind in ("rollout", "data")
        for step in range(40)
        for k in range(8)
    ]
    seeds = [derive_seed(*path) for path in paths]
    assert len(set(seeds)) == len(paths)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert max(seeds) > 2**30  # all bits are used


def test_parts_of_a_path_do_not_run_together() -> None:
    assert derive_seed(0, 1, 23) != derive_seed(0, 12, 3)
    assert derive_seed(1, 2) != derive_seed(12)


def test_a_seed_leaves_room_for_the_sample_index() -> None:
    """The engine adds it, and some generators take 32 bits."""
    assert max(derive_seed(0, k) for k in range(1000)) + 10_000 < 2**32
