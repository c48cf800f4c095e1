// Waits for an agent by its heartbeats.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "worker/agent/agent.h"

namespace paceline {

// Heartbeats until one is as wanted, or for a minute; the last one.
template <typename Wanted>
v1::Heartbeat AwaitBeat(Agent& agent, const Wanted& wanted) {
  const absl::Time give_up = absl::Now() + absl::Minutes(1);
  for (;;) {
    v1::Heartbeat beat = agent.Heartbeat().heartbeat;
    if (wanted(beat) || absl::Now() > give_up) return beat;
    agent.AwaitChange(absl::Milliseconds(20));
  }
}

}  // namespace paceline
