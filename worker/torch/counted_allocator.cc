#include "worker/torch/counted_allocator.h"

#include <malloc.h>

#include <cstdint>

#include "c10/core/Allocator.h"
#include "c10/core/CPUAllocator.h"
#include "core/base/tensor_memory.h"

namespace paceline {
namespace {

// What malloc gave: the same number when it is freed, without a header of ours
// before every tensor.
int64_t BytesOf(void* memory) {
  return static_cast<int64_t>(malloc_usable_size(memory));
}

c10::Allocator* Inner() { return c10::GetDefaultCPUAllocator(); }

void CountAndFree(void* memory) {
  if (memory == nullptr) return;
  CountTensorBytes(-BytesOf(memory));
  Inner()->raw_deleter()(memory);
}

// Thread-safe.
class CountedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    c10::DataPtr inner = Inner()->allocate(bytes);
    void* const memory = inner.get();
    if (memory != nullptr) CountTensorBytes(BytesOf(memory));
    // Its context is the memory itself: it has a raw deleter.
    const c10::Device device = inner.device();
    inner.release_context();
    return {memory, memory, &CountAndFree, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CountAndFree; }
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
