// What the parts of one simulation share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/simulate/event_queue.h"
#include "core/simulate/network.h"
#include "core/simulate/processor.h"
#include "core/simulate/program.h"
#include "core/simulate/simulation.h"
#include "core/simulate/workload.h"

namespace paceline {

enum class SimEventKind : uint8_t {
  kWorkDue,      // of worker `index`; `version` is its processor's
  kFrameCpuDue,  // the same for the oldest frame of its CPU
  kReachPort,    // frame `index` asks for the receiver's port
  kArrived,      // frame `index` is there
  kCredit,       // channel `index` may have one frame more on its way
  kReport,       // a worker's report is at the step gate
  kVerdict,      // the gate's verdict is at worker `index`
  kSlowBegin,    // slow-down `index`
  kSlowEnd,
  kFail,  // failure `index`
  kRecover,
};

struct SimEvent {
  SimEventKind kind = SimEventKind::kWorkDue;
  int index = 0;
  uint32_t version = 0;
};

// Bytes of each worker over time.
struct MemoryMeter {
  struct Bytes {
    double fixed = 0;
    double now = 0;
    double peak = 0;
  };
  std::vector<Bytes> workers;
};

// Keeps a trace when asked to.
class TraceKeeper {
 public:
  explicit TraceKeeper(bool keep) : keep_(keep) {}

  bool keeps() const { return keep_; }
  void Add(const TraceSlice& slice) {
    if (keep_ && HasRoom()) trace_.slices.push_back(slice);
  }
  void Add(const MemorySample& sample) {
    if (keep_ && HasRoom()) trace_.memory.push_back(sample);
  }
  SimulationTrace Take() { return std::move(trace_); }

 private:
  bool HasRoom() {
    const size_t kept = trace_.slices.size() + trace_.memory.size();
    if (kept < static_cast<size_t>(kMaxTraceEntries)) return true;
    ++trace_.dropped;
    return false;
  }

  const bool keep_;
  SimulationTrace trace_;
};

// Thread-compatible; what it refers to outlives it.
struct World {
  const PlanProblem& problem;
  const SimulationOptions& options;
  const Program& program;
  const std::vector<StageWork>& stages;

  Network network;
  TraceKeeper trace;
  MemoryMeter memory = {};
  EventQueue<SimEvent> queue = {};
  double now = 0;
  std::vector<Processor> processors = {};  // [workers]
  std::vector<DeviceUse> uses = {};        // [workers]
  std::vector<int> step_of = {};           // [workers]: which one it is in

  void ChangeMemory(int worker, double bytes) {
    if (bytes == 0) return;
    MemoryMeter::Bytes& meter = memory.workers[worker];
    meter.now += bytes;
    meter.peak = std::max(meter.peak, meter.now);
    if (trace.keeps()) {
      trace.Add(MemorySample{now, program.device_of[worker], meter.now});
    }
  }
};

}  // namespace paceline
