from __future__ import annotations

import threading
import time

import pytest

from gspo_ray.tracking.delivery import Delivery


@pytest.fixture
def start():
    made = []

    def make(**options):
        warnings: list[str] = []
        lane = Delivery(
            "server",
            warn=warnings.append,
            is_permanent=lambda error: isinstance(error, ValueError),
            **({"first_wait_s": 0.01, "longest_wait_s": 0.02} | options),
        )
        made.append(lane)
        return lane, warnings

    yield make
    for lane in made:
        lane.stop()


def test_an_outage_keeps_the_order_and_is_said_once(start):
    lane, warnings = start()
    arrived, tries, up = [], [], threading.Event()

    def send(number):
        tries.append(number)
        if number >= 2 and not up.is_set():
            try:
                raise ConnectionRefusedError("connection refused")
            except ConnectionRefusedError as error:
                raise RuntimeError("long-winded wrapper") from error
        arrived.append(number)

    for number in range(5):
        lane.put(f"item {number}", lambda number=number: send(number))
    deadline = time.monotonic() + 5
    while tries.count(2) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert arrived == [0, 1]
    assert lane.is_down
    assert lane.waiting == ["item 2", "item 3", "item 4"]
    up.set()
    assert lane.drain(5)
    assert arrived == [0, 1, 2, 3, 4]
    assert len(warnings) == 2
    assert "did not take item 2 (ConnectionRefusedError: connection refused)" in warnings[0]
    assert "answers again" in warnings[1]


def test_a_refused_item_is_dropped_and_counted(start):
    lane, warnings = start()
    arrived = []

    def refuse():
        raise ValueError("no such field")

    for name, send in (("a", refuse), ("b", lambda: arrived.append("b")), ("c", refuse)):
        lane.put(name, send)
    assert lane.drain(5)
    assert (arrived, lane.lost, lane.pending) == (["b"], 2, 0)
    assert len(warnings) == 1
    assert "refused a (ValueError: no such field)" in warnings[0]


def test_nothing_is_sent_before_ready_and_the_front_of_the_queue_is_reachable(start):
    ready = threading.Event()
    lane, warnings = start(ready=ready, max_items=3)
    arrived = []
    for name in ("a", "b", "c", "d"):
        lane.put(name, lambda name=name: arrived.append(name))
    lane.put("urgent", lambda: arrived.append("urgent"), first=True)
    assert not lane.drain(0.05)
    ready.set()
    assert lane.drain(5)
    assert arrived == ["urgent", "b", "c", "d"]
    assert lane.lost == 1
    assert "3 items are waiting, the oldest (a, ...) are given up" in warnings[0]


def test_drain_returns_in_time_when_an_item_hangs(start):
    lane, _ = start()
    release = threading.Event()
    lane.put("hangs", lambda: release.wait(10))
    begin = time.monotonic()
    assert not lane.drain(0.2)
    assert time.monotonic() - begin < 1
    release.set()
