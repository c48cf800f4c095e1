// Waits for an agent by its heartbeats.
#pragma once

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "worker/control/agent.h"

namespace paceline {

// Heartbeats until one is as wanted, or for a minute; the last one.
template <typename Wanted>
v1::Heartbeat AwaitBeat(Agent& agent, const Wanted& wanted) {
  const Instant give_up = SteadyNow() + absl::Minutes(1);
  for (;;) {
    v1::Heartbeat beat = agent.Heartbeat().heartbeat;
    if (wanted(beat) || SteadyNow() > give_up) return beat;
    agent.AwaitChange(absl::Milliseconds(20));
  }
}

}  // namespace paceline
