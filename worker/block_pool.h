// Memory for the bytes of rounds, used again from step to step: fresh pages of
// a hundred megabytes cost as much as summing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/round_payload.h"

namespace paceline {

// Thread-safe.  What it gave may outlive it.
class BlockPool {
 public:
  // kept_bytes: of blocks that nobody uses; beyond them memory is freed.
  explicit BlockPool(size_t kept_bytes);

  // Like RoundPayload::Make(): uninitialised, aligned to 64 bytes.
  std::shared_ptr<RoundPayload> Make(size_t bytes);

  size_t kept_bytes() const;  // by nobody used now

 private:
  struct Freed {
    size_t bytes = 0;

    void operator()(uint8_t* block) const;
  };
  using Block = std::unique_ptr<uint8_t, Freed>;

  // Shared with every block that is out, which comes back when its last user
  // drops it, on any thread.
  struct Shelf {
    explicit Shelf(size_t most) : most_bytes(most) {}

    Block Take(size_t bytes);
    void Put(size_t bytes, Block block);

    const size_t most_bytes;
    mutable absl::Mutex mutex;
    std::multimap<size_t, Block> blocks ABSL_GUARDED_BY(mutex);  // by size
    size_t bytes_kept ABSL_GUARDED_BY(mutex) = 0;
  };

  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace paceline
