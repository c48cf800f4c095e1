// How a training step ends: replicas sum their gradients, every worker reports
// to the step gate and hears the verdict.
#pragma once

#include <vector>

#include "core/simulate/frame_path.h"
#include "core/simulate/world.h"

namespace paceline {

// Replicas sum by a ring all-reduce (Patarasuk and Yuan 2009): 2 (m - 1) rounds
// of parts of 1 / m of the gradient, as frames through the same ports as all
// others.  Then each worker reports to the first stage's first worker, one
// latency away; with all reports in and gate_seconds later the verdict goes
// back.  Thread-compatible.
class StepEnd {
 public:
  // Both outlive this.
  StepEnd(World& world, FramePath& path);

  // A worker has computed all of its step.
  void OnComputed(int worker);
  // A part has come to its receiver.
  void OnPart(const SimFrame& part);
  // Reaction to kReport.
  void OnReport();

  // The step begins again.
  void Clear();

 private:
  struct Ring {
    int stage = 0;
    int next = 0;    // worker
    int rounds = 0;  // 0: no replicas
    bool computed = false;
    int sent = 0;
    int received = 0;
  };

  void TurnRing(int worker);
  void Report(int worker);
  double LatencyBetween(int from, int to) const;

  World& world_;
  FramePath& path_;
  std::vector<Ring> rings_;  // [workers]
  int reports_ = 0;
};

}  // namespace paceline
