#include "core/simulate/step_end.h"

#include <algorithm>

namespace paceline {

StepEnd::StepEnd(World& world, FramePath& path)
    : world_(world), path_(path), exchanges_(world.program.workers()) {
  for (int stage = 0; stage < world.program.stages; ++stage) {
    const std::vector<int>& replicas = world.program.workers_of[stage];
    if (replicas.size() == 1) continue;
    for (const int replica : replicas) {
      exchanges_[replica] = {.stage = stage,
                             .others = static_cast<int>(replicas.size()) - 1};
    }
  }
}

void StepEnd::OnComputed(int worker) {
  exchanges_[worker].computed = true;
  SendToOthers(worker, /*sum=*/false);
  GoOn(worker);
}

void StepEnd::OnPart(const SimFrame& part) {
  Exchange& exchange = exchanges_[part.to];
  ++(part.micro_batch == 0 ? exchange.parts : exchange.sums);
  GoOn(part.to);
}

void StepEnd::GoOn(int worker) {
  Exchange& exchange = exchanges_[worker];
  if (!exchange.computed || exchange.parts < exchange.others) return;
  if (!exchange.summed) {
    exchange.summed = true;
    SendToOthers(worker, /*sum=*/true);
  }
  if (exchange.sums < exchange.others) return;
  exchange.computed = exchange.summed = false;
  exchange.parts = exchange.sums = 0;
  Report(worker);
}

void StepEnd::SendToOthers(int worker, bool sum) {
  const Exchange& exchange = exchanges_[worker];
  const std::vector<int>& all = world_.program.workers_of[exchange.stage];
  const auto own = std::find(all.begin(), all.end(), worker) - all.begin();
  for (int i = 1; i <= exchange.others; ++i) {
    const int to = all[(own + i) % all.size()];
    path_.Send({.kind = SimFrameKind::kPart,
                .stage = exchange.stage,
                .micro_batch = sum ? 1 : 0,
                .from = worker,
                .to = to,
                .bytes = world_.stages[exchange.stage].parameter_bytes /
                         (exchange.others + 1)});
  }
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
  for (Exchange& exchange : exchanges_) {
    exchange.computed = exchange.summed = false;
    exchange.parts = exchange.sums = 0;
  }
}

}  // namespace paceline
