"""SIGINT and SIGTERM: the first ends the job in order, the second at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class OrderlyExit:
    """Cancels the task that installs it; `killed_by` then tells why. `say(text, style)` is the console."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self.killed_by: signal.Signals | None = None
        self.nothing_left_to_stop = False

    def install(self) -> None:
        """In the running task; after ray.init, which sets handlers of its own."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def on_signal(number: signal.Signals) -> None:
            if self.killed_by is not None:
                self._say("Second signal: leaving at once.", "red")
                os._exit(128 + number)
            self.killed_by = number
            if self.nothing_left_to_stop:
                self._say(f"{number.name}: all work is done, only storing the results (again to leave at once) ...", "")
                return
            self._say(f"{number.name}: ending the run in order (again to leave at once) ...", "yellow")
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
