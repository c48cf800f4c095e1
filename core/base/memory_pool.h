// MemoryPool gives memory again that nobody uses any more: fresh pages cost a
// fault every 4 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace paceline {

// Thread-safe.  Its blocks may outlive it.
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
