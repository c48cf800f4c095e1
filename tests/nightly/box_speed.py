"""How fast this box computes at the moment, for tests that share it.

A virtual machine slows down by half when somebody else's work comes to the
other thread of its core, and says nothing of it.  What was measured before and
what is measured after such a change cannot be compared.
"""

import statistics
import threading
import time

PERIOD_SECONDS = 0.1
LOOP = 60_000  # about 2 ms: one or two percent of a core


def loop_seconds():
    """CPU seconds of a fixed piece of work on this thread."""
    begin = time.thread_time_ns()
    total = 0
    for i in range(LOOP):
        total += i * i
    return (time.thread_time_ns() - begin) * 1e-9


class BoxSpeed:
    """Times the same loop again and again on a thread; a context manager."""

    def __init__(self):
        self._samples = []  # (monotonic time, CPU seconds)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.wait(PERIOD_SECONDS):
            self._samples.append((time.monotonic(), loop_seconds()))

    def since(self, begin):
        """Median seconds of the loop since time.monotonic() was `begin`."""
        samples = [seconds for at, seconds in self._samples if at >= begin]
        return statistics.median(samples or [loop_seconds()])
