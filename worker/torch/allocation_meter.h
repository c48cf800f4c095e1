// Counts what LibTorch allocates on this thread.
#pragma once

#include <cstdint>
#include <memory>

#include "torch/torch.h"

namespace paceline {

// Lives on the compute thread, as long as what it counts.  Costs a call for
// each allocation, so only the profiler asks for it.
class AllocationMeter {
 public:
  explicit AllocationMeter(bool enabled);
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  // Allocated since construction less freed; -1 when not enabled.
  int64_t live_bytes() const;

 private:
  class Counter;

  std::shared_ptr<Counter> counter_;  // LibTorch's guard shares it
  std::unique_ptr<c10::DebugInfoGuard> guard_;
};

}  // namespace paceline
