#!/usr/bin/env python3
"""One process of a Gloo all-reduce, for round_speed.py.

  gloo_member.py INDEX MEMBERS HOST_OF_THE_FIRST

Answers each line with one: `reduce BYTES` and `again` with `ready`, `go NS`
(of the monotonic clock) with `done NS CPU_SECONDS`.
"""

import datetime
import sys
import time

import torch
import torch.distributed as dist

PORT = 29477


def main():
    index, members, host = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{host}:{PORT}", rank=index,
        world_size=members, timeout=datetime.timedelta(seconds=120))
    print("here", flush=True)
    gradient = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "reduce":
            gradient = torch.empty(int(words[1]) // 4)
        if words[0] in ("reduce", "again"):
            gradient.fill_(index + 1)
            print("ready", flush=True)
        elif words[0] == "go":
            cpu = time.process_time()
            wait = (int(words[1])
                    - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) / 1e9
            if wait > 0:
                time.sleep(wait)
            dist.all_reduce(gradient)
            end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            total = members * (members + 1) // 2
            assert gradient[0] == total and gradient[-1] == total
            print(f"done {end} {time.process_time() - cpu}", flush=True)


if __name__ == "__main__":
    main()
