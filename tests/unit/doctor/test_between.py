import pytest

from gspo_ray.doctor.between import (
    GB,
    MB,
    Reading,
    Skew,
    check_all_reduce,
    check_clocks,
    check_gpu_count,
    check_object_store,
    clock_skew,
)
from gspo_ray.doctor.finding import Level


@pytest.mark.parametrize("way_there", [0.0, 0.3, 1.0])
def test_the_true_skew_is_within_the_bound_however_a_round_trip_is_divided(way_there: float) -> None:
    ahead, trip = 2.5, 0.2
    reading = Reading(sent=100.0, theirs=100.0 + way_there * trip + ahead, received=100.0 + trip)
    slow = Reading(sent=0.0, theirs=50.0, received=9.0)
    skew = clock_skew([slow, reading])
    assert skew.bound == pytest.approx(trip / 2)  # of the quickest round trip
    assert abs(skew.seconds - ahead) <= skew.bound + 1e-9


@pytest.mark.parametrize(
    ("skew", "level"),
    [
        (Skew(0.01, 0.001), Level.PASS),
        (Skew(-2.0, 0.1), Level.WARN),
        (Skew(2.0, 1.5), Level.PASS),  # the network is too slow to tell
        (Skew(400.0, 0.1), Level.FAIL),
    ],
)
def test_clocks(skew: Skew, level: Level) -> None:
    assert check_clocks({"b": skew}).level is level


def test_one_node_has_nothing_between() -> None:
    assert check_clocks({}).level is Level.SKIP
    assert check_object_store({}).level is Level.SKIP


def test_a_slow_and_a_broken_way_are_named() -> None:
    finding = check_object_store({("a", "b"): 900 * MB, ("b", "c"): 20 * MB, ("c", "a"): "GetTimeoutError"})
    assert finding.level is Level.FAIL
    assert finding.found == (
        "b to c: 20 MB/s is slow, adapters travel every step; c to a: GetTimeoutError; 20 to 900 MB/s"
    )
    assert check_object_store({("a", "b"): 900 * MB}).level is Level.PASS


def test_all_reduce() -> None:
    assert check_all_reduce(8, 200 * GB).found == "8 GPUs, 200.0 GB/s bus bandwidth"
    assert check_all_reduce(2, 0.2 * GB).level is Level.WARN


@pytest.mark.parametrize(
    ("wanted", "there", "level"), [(0, 0, Level.SKIP), (2, 0, Level.FAIL), (4, 2, Level.WARN), (2, 8, Level.PASS)]
)
def test_gpus_of_the_cluster_against_those_of_the_config(wanted: int, there: float, level: Level) -> None:
    assert check_gpu_count(wanted, there).level is level
