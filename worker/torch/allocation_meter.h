// Counts what LibTorch allocates on this thread.
#pragma once

#include <cstdint>
#include <memory>

#include "ATen/ATen.h"

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

// From the first call on, for the whole process: what LibTorch allocates for
// tensors passes through an allocator that counts it, freed by whatever thread.
// What was allocated before is not counted when it is freed.  Thread-safe.
void CountLibTorchsMemory();

}  // namespace paceline
