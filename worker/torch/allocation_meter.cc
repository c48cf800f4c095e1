#include "worker/torch/allocation_meter.h"

#include <malloc.h>

#include <cstring>

#include "c10/core/Allocator.h"
#include "c10/core/CPUAllocator.h"
#include "c10/util/ThreadLocalDebugInfo.h"
#include "core/base/tensor.h"

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

namespace {

// malloc_usable_size() gives the same number when the memory is freed, and
// needs no header of ours before every tensor.
int64_t BytesOf(void* memory) {
  return static_cast<int64_t>(malloc_usable_size(memory));
}

c10::Allocator* Inner() { return c10::GetDefaultCPUAllocator(); }

void CountAndFree(void* memory) {
  if (memory == nullptr) return;
  CountTensorBytes(-BytesOf(memory));
  Inner()->raw_deleter()(memory);
}

c10::DataPtr AllocateCounted(size_t bytes) {
  c10::DataPtr inner = Inner()->allocate(bytes);
  void* const memory = inner.get();
  if (memory != nullptr) CountTensorBytes(BytesOf(memory));
  // Its context is the memory itself: it has a raw deleter.
  const c10::Device device = inner.device();
  inner.release_context();
  return {memory, memory, &CountAndFree, device};
}

// Thread-safe.  LibTorch 1.13 has allocate() const and no copy_data(): each of
// its versions overrides some of these, so none says so.
class CountedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const { return AllocateCounted(bytes); }
  c10::DataPtr allocate(size_t bytes) { return AllocateCounted(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &CountAndFree; }
  void copy_data(void* to, const void* from, size_t bytes) const {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

void CountLibTorchsMemory() {
  static const bool done = [] {
    // Never freed: tensors of other static objects may outlive any order.
    c10::SetCPUAllocator(new CountedAllocator);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace paceline
