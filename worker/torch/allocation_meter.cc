#include "worker/torch/allocation_meter.h"

#include "c10/core/Allocator.h"
#include "c10/util/ThreadLocalDebugInfo.h"

namespace paceline {

class AllocationMeter::Counter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, int64_t alloc_size,
                         int64_t /*total_allocated*/,
                         int64_t /*total_reserved*/,
                         c10::Device /*device*/) override {
    live_bytes_ += alloc_size;  // negative: freed
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live_bytes() const { return live_bytes_; }

 private:
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
