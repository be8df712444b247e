import resource
from pathlib import Path

import pytest

from gspo_ray.doctor.finding import Level
from gspo_ray.doctor.machine import (
    GIB,
    Limits,
    cgroup_limits,
    check_cpus,
    check_memory,
    check_open_files,
    check_shm,
)

FREE = Limits(memory_bytes=None, cpus=None)


@pytest.mark.parametrize(
    ("soft", "level"), [(1024, Level.WARN), (65536, Level.PASS), (resource.RLIM_INFINITY, Level.PASS)]
)
def test_few_open_files_warn_with_the_command(soft: int, level: Level) -> None:
    finding = check_open_files((soft, resource.RLIM_INFINITY))
    assert finding.level is level
    assert ("ulimit -n 65536" in finding.fix) == (level is Level.WARN)


@pytest.mark.parametrize(
    ("available", "limit", "level"),
    [
        (20 * GIB, None, Level.PASS),
        (3 * GIB, None, Level.WARN),
        (GIB // 2, None, Level.FAIL),
        (20 * GIB, 2 * GIB, Level.WARN),  # the machine has room, the container not
    ],
)
def test_memory_is_what_the_container_may_use(available: int, limit: int | None, level: Level) -> None:
    finding = check_memory(Limits(memory_bytes=limit, cpus=None), total=32 * GIB, available=available)
    assert finding.level is level
    assert ("this container may use 2.0 GiB" in finding.found) == (limit is not None)


@pytest.mark.parametrize(
    ("ray_cpus", "quota", "level"),
    [(8.0, None, Level.PASS), (None, None, Level.PASS), (8.0, 2.0, Level.WARN), (2.0, 2.0, Level.PASS)],
)
def test_ray_must_not_count_cpus_that_the_container_has_not(
    ray_cpus: float | None, quota: float | None, level: Level
) -> None:
    finding = check_cpus(ray_cpus, Limits(memory_bytes=None, cpus=quota), usable=8)
    assert finding.level is level
    assert finding.fix == ("ray start --num-cpus 2" if level is Level.WARN else "")


@pytest.mark.parametrize(
    ("store", "total", "free", "level"),
    [
        (6 * GIB, 8 * GIB, 8 * GIB, Level.PASS),
        (6 * GIB, 2 * GIB, 2 * GIB, Level.WARN),
        (None, GIB // 16, GIB // 16, Level.FAIL),  # Docker's 64 MiB
        (6 * GIB, 8 * GIB, GIB // 16, Level.FAIL),
    ],
)
def test_shared_memory_must_hold_the_object_store(store: float | None, total: int, free: int, level: Level) -> None:
    finding = check_shm(store, total=total, free=free)
    assert finding.level is level
    assert ("--shm-size" in finding.fix) == (level is not Level.PASS)


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({}, FREE),
        ({"memory.max": "max\n", "cpu.max": "max 100000\n"}, FREE),
        ({"memory.max": "4294967296\n", "cpu.max": "150000 100000\n"}, Limits(4 * GIB, 1.5)),
        (
            {
                "memory/memory.limit_in_bytes": "4294967296\n",
                "cpu/cpu.cfs_quota_us": "50000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            Limits(4 * GIB, 0.5),
        ),
        (
            {
                "memory/memory.limit_in_bytes": "9223372036854771712\n",  # what the kernel writes for none
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            FREE,
        ),
    ],
    ids=["none", "2 unlimited", "2", "1", "1 unlimited"],
)
def test_limits_of_both_versions_of_cgroups(tmp_path: Path, files: dict[str, str], limits: Limits) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cgroup_limits(tmp_path) == limits
