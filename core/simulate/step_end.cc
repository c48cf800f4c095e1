#include "core/simulate/step_end.h"

#include <cstddef>

namespace paceline {

StepEnd::StepEnd(World& world, FramePath& path)
    : world_(world), path_(path), rings_(world.program.workers()) {
  for (int stage = 0; stage < world.program.stages; ++stage) {
    const std::vector<int>& replicas = world.program.workers_of[stage];
    const size_t m = replicas.size();
    if (m == 1) continue;
    for (size_t i = 0; i < m; ++i) {
      rings_[replicas[i]] = {.stage = stage,
                             .next = replicas[(i + 1) % m],
                             .rounds = 2 * (static_cast<int>(m) - 1)};
    }
  }
}

void StepEnd::OnComputed(int worker) {
  rings_[worker].computed = true;
  TurnRing(worker);
}

void StepEnd::OnPart(const SimFrame& part) {
  ++rings_[part.to].received;
  TurnRing(part.to);
}

void StepEnd::TurnRing(int worker) {
  Ring& ring = rings_[worker];
  if (!ring.computed) return;
  while (ring.sent < ring.rounds && ring.sent <= ring.received) {
    const auto replicas =
        static_cast<double>(world_.program.workers_of[ring.stage].size());
    path_.Send({.kind = SimFrameKind::kPart,
                .stage = ring.stage,
                .micro_batch = ring.sent++,
                .from = worker,
                .to = ring.next,
                .bytes = world_.stages[ring.stage].parameter_bytes / replicas});
  }
  if (ring.received < ring.rounds) return;
  ring.computed = false;
  ring.sent = ring.received = 0;
  Report(worker);
}

double StepEnd::LatencyBetween(int from, int to) const {
  const std::vector<int>& device_of = world_.program.device_of;
  return world_.network.latency_seconds(device_of[from], device_of[to]);
}

void StepEnd::Report(int worker) {
  world_.queue.Push(world_.now + LatencyBetween(worker, 0),
                    {SimEventKind::kReport, worker});
}

void StepEnd::OnReport() {
  if (++reports_ < world_.program.workers()) return;
  reports_ = 0;
  for (int worker = 0; worker < world_.program.workers(); ++worker) {
    world_.queue.Push(
        world_.now + world_.options.gate_seconds + LatencyBetween(0, worker),
        {SimEventKind::kVerdict, worker});
  }
}

void StepEnd::Clear() {
  reports_ = 0;
  for (Ring& ring : rings_) {
    ring.computed = false;
    ring.sent = ring.received = 0;
  }
}

}  // namespace paceline
