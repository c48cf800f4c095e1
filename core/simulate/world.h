// The parts of one simulation share this state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/simulate/program.h"
#include "core/simulate/resources.h"
#include "core/simulate/simulation.h"

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

// Events of one time come out in the order in which they went in, so that the
// same run gives the same result everywhere.  Thread-compatible.
class SimEventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  double next_seconds() const { return heap_.front().at_seconds; }

  void Push(double at_seconds, SimEvent event) {
    heap_.push_back({at_seconds, pushed_++, event});
    std::push_heap(heap_.begin(), heap_.end(), &IsLater);
  }

  // The queue is not empty.
  SimEvent Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), &IsLater);
    const SimEvent event = heap_.back().event;
    heap_.pop_back();
    return event;
  }

  // Drops all events but those that `keep` is true for.
  template <typename Keep>
  void Retain(Keep keep) {
    std::erase_if(heap_, [&](const Entry& e) { return !keep(e.event); });
    std::make_heap(heap_.begin(), heap_.end(), &IsLater);
  }

 private:
  struct Entry {
    double at_seconds;
    uint64_t order;
    SimEvent event;
  };

  static bool IsLater(const Entry& a, const Entry& b) {
    return a.at_seconds != b.at_seconds ? a.at_seconds > b.at_seconds
                                        : a.order > b.order;
  }

  std::vector<Entry> heap_;
  uint64_t pushed_ = 0;
};

// Bytes of a worker over time.
struct MemoryMeter {
  double fixed = 0;
  double now = 0;
  double peak = 0;
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
  SimEventQueue queue = {};
  double now = 0;
  std::vector<Processor> processors = {};  // [workers]
  std::vector<MemoryMeter> memory = {};    // [workers]
  std::vector<DeviceUse> uses = {};        // [workers]
  std::vector<int> step_of = {};           // [workers]: which one it is in

  double LatencyBetween(int from, int to) const {
    return network.latency_seconds(program.device_of[from],
                                   program.device_of[to]);
  }

  void ChangeMemory(int worker, double bytes) {
    if (bytes == 0) return;
    MemoryMeter& meter = memory[worker];
    meter.now += bytes;
    meter.peak = std::max(meter.peak, meter.now);
    trace.Add(MemorySample{now, program.device_of[worker], meter.now});
  }
};

}  // namespace paceline
