#include "worker/rpc/tensor_pool.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace paceline {
namespace {

// What is smaller has no page of its own.
constexpr int64_t kSmallestBytes = 4 << 10;

}  // namespace

class TensorPool::Store {
 public:
  explicit Store(int64_t kept_bytes) : limit_(kept_bytes) {}

  // Null when there is none of that size.
  std::shared_ptr<uint8_t> Take(int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const auto found = kept_.find(bytes);
    if (found == kept_.end() || found->second.empty()) return nullptr;
    std::shared_ptr<uint8_t> memory = std::move(found->second.back());
    found->second.pop_back();
    kept_bytes_ -= bytes;
    return memory;
  }

  // Freed, after return, when there is no room.
  void Keep(int64_t bytes, std::shared_ptr<uint8_t>& memory) {
    absl::MutexLock lock(&mutex_);
    if (kept_bytes_ + bytes > limit_) return;
    kept_bytes_ += bytes;
    kept_[bytes].push_back(std::move(memory));
  }

 private:
  const int64_t limit_;

  absl::Mutex mutex_;
  int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::vector<std::shared_ptr<uint8_t>>> kept_
      ABSL_GUARDED_BY(mutex_);  // by bytes
};

TensorPool::TensorPool(int64_t kept_bytes)
    : store_(std::make_shared<Store>(kept_bytes)) {}

Tensor TensorPool::Allocate(DType dtype, Shape shape) {
  Tensor tensor{dtype, std::move(shape), nullptr};
  const int64_t bytes = tensor.bytes();
  if (bytes < kSmallestBytes) {
    return Tensor::Allocate(dtype, std::move(tensor.shape));
  }
  std::shared_ptr<uint8_t> memory = store_->Take(bytes);
  if (memory == nullptr) {
    memory = Tensor::Allocate(DType::kU8, {bytes}).data;
  }
  uint8_t* const data = memory.get();
  tensor.data = std::shared_ptr<uint8_t>(
      data, [store = store_, bytes, memory = std::move(memory)](
                uint8_t*) mutable { store->Keep(bytes, memory); });
  return tensor;
}

}  // namespace paceline
