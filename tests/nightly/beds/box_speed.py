"""How fast this box computes at the moment, for tests that share it.

A virtual machine slows down by half when somebody else's work comes to the
other thread of its core, and says nothing of it.  What was measured before and
what is measured after such a change cannot be compared.
"""

import statistics
import threading
import time

PERIOD_SECONDS = 0.05
WARM_LOOP = 10_000
LOOP = 40_000  # about 1 ms: two percent of a core


def loop_seconds(count):
    """CPU seconds of a fixed piece of work on this thread."""
    begin = time.thread_time_ns()
    total = 0
    for i in range(count):
        total += i * i
    return (time.thread_time_ns() - begin) * 1e-9


class Speed:
    """Of the box in some stretch of time."""

    def __init__(self, samples):
        ordered = sorted(samples)
        self.mean = statistics.mean(ordered)
        tenth = len(ordered) // 10
        # What nine in ten loops lie within, as a part of them.
        self.spread = (ordered[-1 - tenth] - ordered[tenth]) / self.mean

    def is_steady(self):
        return self.spread < 0.25


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
            loop_seconds(WARM_LOOP)
            self._samples.append((time.monotonic(), loop_seconds(LOOP)))

    def since(self, begin):
        """The Speed since time.monotonic() was `begin`."""
        return Speed([seconds for at, seconds in self._samples if at >= begin]
                     or [loop_seconds(LOOP)])
