"""A background sender: hands items over in order, keeps what fails, and never holds up whoever put them in."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class _Item:
    what: str
    send: Callable[[], object]


class Delivery:
    """One thread, one queue. Each outage and its end are said once through `warn`.

    An item whose error `is_permanent` (the other side will never take it) is dropped and counted in `lost`; any other
    error keeps the item and every one behind it until the other side is back. `ready` holds the thread back until set.
    """

    def __init__(
        self,
        name: str,
        *,
        warn: Callable[[str], None],
        is_permanent: Callable[[Exception], bool],
        ready: threading.Event | None = None,
        max_items: int | None = None,
        first_wait_s: float = 1.0,
        longest_wait_s: float = 60.0,
    ) -> None:
        self.name = name
        self.lost = 0
        self._warn = warn
        self._is_permanent = is_permanent
        self._ready = ready
        self._max_items = max_items
        self._waits = (first_wait_s, longest_wait_s)
        self._items: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._hurry = False
        self._stopped = False
        self._down = False
        # daemon: a request that hangs must not keep the finished driver alive
        self._thread = threading.Thread(target=self._run, name=f"deliver-{name}", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Items not delivered yet, the one being sent included."""
        return len(self._items)

    @property
    def waiting(self) -> list[str]:
        """Names of the items not delivered yet, in order."""
        with self._changed:
            return [item.what for item in self._items]

    @property
    def is_down(self) -> bool:
        """Whether the last try failed."""
        return self._down

    def put(self, what: str, send: Callable[[], object], *, first: bool = False) -> None:
        """Queue `send`, which must be safe to repeat. `what` names it for the person; `first` jumps the queue."""
        item = _Item(what, send)
        trimmed = None
        with self._changed:
            if first:
                self._items.appendleft(item)
            else:
                self._items.append(item)
                if self._max_items and len(self._items) > self._max_items:
                    trimmed = self._items.popleft()
                    self.lost += 1
            self._changed.notify_all()
        if trimmed and self.lost == 1:
            self._say(
                f"{self.name}: {self._max_items} items are waiting, the oldest ({trimmed.what}, ...) are given up."
            )

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything is delivered, retrying quickly from now on; False when the time was not enough."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._items, timeout=max(0.0, timeout_s))

    def stop(self) -> None:
        """Send nothing more; an item on its way is not recalled."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        wait_s = self._waits[0]
        while (item := self._next()) is not None:
            try:
                item.send()
            except Exception as error:
                if self._is_permanent(error):
                    self._drop(item, error)
                    continue
                if not self._down:
                    self._down = True
                    self._say(
                        f"{self.name} did not take {item.what} ({_reason(error, root=True)}). Training goes on; "
                        "it is kept and sent in order when the other side answers again."
                    )
                self._pause(wait_s)
                wait_s = min(2 * wait_s, self._waits[1])
                continue
            wait_s = self._waits[0]
            if self._down:
                self._down = False
                self._say(f"{self.name} answers again; {self.pending} kept items are being sent.")
            self._forget(item)

    def _next(self) -> _Item | None:
        with self._changed:
            while not self._stopped:
                if self._items and (self._ready is None or self._ready.is_set()):
                    return self._items[0]
                self._changed.wait(0.2 if self._items else None)  # polls `ready`, which cannot notify
        return None

    def _pause(self, wait_s: float) -> None:
        with self._changed:
            if self._hurry:
                self._changed.wait_for(lambda: self._stopped, timeout=min(wait_s, 0.5))
            else:
                self._changed.wait_for(lambda: self._stopped or self._hurry, timeout=wait_s)

    def _say(self, message: str) -> None:
        try:
            self._warn(message)
        except Exception:  # a closed console must not end the sending
            logging.getLogger(__name__).exception("could not say: %s", message)

    def _drop(self, item: _Item, error: Exception) -> None:
        self.lost += 1
        if self.lost == 1:
            self._say(
                f"{self.name} refused {item.what} ({_reason(error)}). It is left out; later refusals are only counted."
            )
        self._forget(item)

    def _forget(self, item: _Item) -> None:
        with self._changed:
            if item in self._items:  # it may have been trimmed away while it was being sent
                self._items.remove(item)
            self._changed.notify_all()


def _reason(error: BaseException, *, root: bool = False) -> str:
    """One short line; `root` digs out what lies below an outage, such as "Connection refused"."""
    while root and (below := error.__cause__ or error.__context__) is not None:
        error = below
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    text = text if len(text) <= 240 else text[:237] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
