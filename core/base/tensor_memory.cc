#include "core/base/tensor_memory.h"

#include <atomic>

namespace paceline {
namespace {

// No other memory is published through these.
constexpr std::memory_order kOrder = std::memory_order_relaxed;

std::atomic<int64_t> now{0};
std::atomic<int64_t> peak{0};

void RaisePeak(int64_t bytes) {
  int64_t highest = peak.load(kOrder);
  while (bytes > highest &&
         !peak.compare_exchange_weak(highest, bytes, kOrder, kOrder)) {
  }
}

}  // namespace

void CountTensorBytes(int64_t bytes) {
  const int64_t after = now.fetch_add(bytes, kOrder) + bytes;
  if (bytes > 0) RaisePeak(after);
}

int64_t TensorBytesNow() { return now.load(kOrder); }

int64_t TensorBytesPeak() { return peak.load(kOrder); }

void BeginTensorPeak() { peak.store(now.load(kOrder), kOrder); }

}  // namespace paceline
