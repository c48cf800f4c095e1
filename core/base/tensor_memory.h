// Memory of tensors: counts the bytes that this process's tensors take and the
// most they took; keeps blocks for the next use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace paceline {

// Counts our tensors (Tensor::Allocate) and those of LibTorch
// (worker/torch/allocation_meter.h).  There is one count for the process, since
// one library may free what another has allocated; a worker has one run at a
// time.  Scratch memory that the libraries get elsewhere is not counted.
// Thread-safe; takes a few nanoseconds.

// bytes: negative when memory is freed.
void CountTensorBytes(int64_t bytes);

int64_t TensorBytesNow();

// The peak since the process began, or since the last BeginTensorPeak().
int64_t TensorBytesPeak();
// Begins a new peak at the present number of bytes.
void BeginTensorPeak();

// Gives memory again that nobody uses any more: fresh pages cost a fault every
// 4 KiB.  Thread-safe.  Its blocks may outlive it.
class MemoryPool {
 public:
  using Block = std::shared_ptr<uint8_t>;

  // kept_bytes: the most bytes of unused blocks; memory beyond them is freed.
  // allocate: makes a block of that many bytes.
  MemoryPool(size_t kept_bytes, std::function<Block(size_t bytes)> allocate);

  // Returns an unused block of this size, or makes one.  The block comes back
  // when its last owner drops it, on any thread.
  Block Take(size_t bytes);

  size_t kept_bytes() const;  // of unused blocks

 private:
  struct Shelf;

  // Shared with every block in use.
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace paceline
