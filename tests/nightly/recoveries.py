"""What a job's events and curve tell of a recovery: when a loss was seen, when
the next attempt took its first step, how many steps were run again."""

import itertools
import re
import statistics

BEGINS = re.compile(r"attempt (\d+) begins from (?:step (\d+)|the beginning)")
REPLAYED = re.compile(r"has run (\d+) steps? again")
# The coordinator's clock and the script's are the same one, read twice.
SLACK_SECONDS = 0.003


class Recovery:
    """Times are seconds from the loss on, and None where nothing tells them."""

    def __init__(self, kind, detected, first_step, replayed, replay):
        self.kind = kind
        self.detected = detected      # the coordinator's first event
        self.first_step = first_step  # the new attempt's first step is done
        self.replayed = replayed      # steps that the job ran again, as it says
        self.replay = replay          # seconds that these took


def curve_of(document):
    """step -> seconds, as the attempt that counts did it."""
    return {point["step"]: point["unix_ms"] / 1e3 for point in document["loss"]}


def step_seconds(document):
    """The median step: a recovery or an evaluation is no step."""
    times = curve_of(document)
    return statistics.median(times[step] - times[step - 1]
                             for step in times if step - 1 in times)


def recovery_of(kind, document, events, lost_at, until, normal):
    """One recovery of a job that has ended.

    lost_at: when a worker was killed, or the first of several.
    until: when the next one was, which belongs to another recovery.  So does a
    move to a better plan, which may follow when the worker is back.
    normal: seconds of a step of the undisturbed job.
    """
    own = [event for event in events
           if lost_at - SLACK_SECONDS <= event["unix_ms"] / 1e3 < until]
    own = list(itertools.takewhile(lambda event: event["kind"] != "move", own))
    seen = [event["unix_ms"] / 1e3 - lost_at for event in own
            if event["kind"] in ("lost", "left")]
    detected = max(0.0, seen[0]) if seen else None
    begun = [event for event in own if event["kind"] == "attempt"]
    if not begun:
        return Recovery(kind, detected, None, None, None)
    base = int(BEGINS.search(begun[-1]["text"])[2] or 0)
    times = curve_of(document)
    first = times.get(base + 1)
    counts = [int(REPLAYED.search(event["text"])[1]) for event in own
              if event["kind"] == "replayed"]
    if first is None or first < lost_at or not counts:
        return Recovery(kind, detected, None, None, None)
    replayed = sum(counts)
    last = times.get(base + replayed)
    replay = last - first + normal if replayed and last else 0.0
    return Recovery(kind, detected, first - lost_at, replayed, replay)


def median_and_most(values, digits):
    known = [value for value in values if value is not None]
    if not known:
        return f"{'-':>8}{'-':>8}"
    return f"{statistics.median(known):8.{digits}f}{max(known):8.{digits}f}"


def show(recoveries):
    """A line for each kind."""
    width = max([len(each.kind) for each in recoveries] + [4])
    print(f"\n{'kind':{width}}{'runs':>6}  {'detected s':^16}  "
          f"{'first step s':^16}  {'replayed steps':^16}  {'replay s':^16}")
    print(" " * (width + 6) + f"  {'median':>8}{'most':>8}" * 4)
    for kind in dict.fromkeys(each.kind for each in recoveries):
        own = [each for each in recoveries if each.kind == kind]
        print(f"{kind:{width}}{len(own):6}"
              f"  {median_and_most([each.detected for each in own], 3)}"
              f"  {median_and_most([each.first_step for each in own], 2)}"
              f"  {median_and_most([each.replayed for each in own], 0)}"
              f"  {median_and_most([each.replay for each in own], 2)}",
              flush=True)
