#include "worker/torch/allocation_meter.h"

#include "c10/core/Allocator.h"
#include "c10/util/ThreadLocalDebugInfo.h"

namespace paceline {

// LibTorch's totals are int64_t in 1.13 and size_t in 2.6: one of the two
// overrides, so neither says so.
class AllocationMeter::Counter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, int64_t alloc_size,
                         int64_t /*total_allocated*/,
                         int64_t /*total_reserved*/, c10::Device /*device*/) {
    Count(alloc_size);
  }
  void reportMemoryUsage(void* /*ptr*/, int64_t alloc_size,
                         size_t /*total_allocated*/, size_t /*total_reserved*/,
                         c10::Device /*device*/) {
    Count(alloc_size);
  }
  bool memoryProfilingEnabled() const { return true; }

  int64_t live_bytes() const { return live_bytes_; }

 private:
  // Negative: freed.
  void Count(int64_t bytes) { live_bytes_ += bytes; }

  int64_t live_bytes_ = 0;
};

AllocationMeter::AllocationMeter(bool enabled) {
  if (!enabled) return;
  counter_ = std::make_shared<Counter>();
  guard_ = std::make_unique<c10::DebugInfoGuard>(
      c10::DebugInfoKind::PROFILER_STATE, counter_);
}

AllocationMeter::~AllocationMeter() = default;

int64_t AllocationMeter::live_bytes() const {
  return counter_ == nullptr ? -1 : counter_->live_bytes();
}

}  // namespace paceline
