// How a training step ends: replicas sum their gradients, every worker reports
// to the step gate and hears the verdict.
#pragma once

#include <vector>

#include "core/simulate/frame_path.h"
#include "core/simulate/world.h"

namespace paceline {

// Each of m replicas sends 1 / m of its gradient to every other one, and then
// the sum of what it gets back, as frames through the same ports as all others
// (worker/pipeline/step_exchange.h).  It sends to the next one first, so
// that no two come to one port; real streams run at the same time.  Then each
// worker reports to the first stage's first worker, one latency away; with all
// reports in and gate_seconds later the verdict goes back.  Thread-compatible.
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
  struct Exchange {
    int stage = 0;
    int others = 0;  // 0: no replicas
    bool computed = false;
    bool summed = false;
    int parts = 0;  // received
    int sums = 0;   // received
  };

  void GoOn(int worker);
  void SendToOthers(int worker, bool sum);
  void Report(int worker);
  double LatencyBetween(int from, int to) const;

  World& world_;
  FramePath& path_;
  std::vector<Exchange> exchanges_;  // [workers]
  int reports_ = 0;
};

}  // namespace paceline
