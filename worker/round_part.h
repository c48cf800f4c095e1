// A member's own part of a round, while it is being computed and until the
// round is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "core/round/message.h"
#include "worker/block_pool.h"
#include "worker/round_payload.h"
#include "worker/round_shape.h"

namespace paceline {

struct PartOptions {
  int64_t step = 0;
  uint64_t division = 0;       // DivisionOf()
  absl::Span<float> gradient;  // [values]; the caller's memory

  // Faults on purpose.
  bool lies = false;        // offers what is not finite as if it were usable
  bool corrupts = false;    // the bytes are not those that the offer names
  bool duplicates = false;  // says everything twice
};

// The bytes of the part, a payload a shard: those of the gradient themselves
// (fp32), or rounded ones in memory of its own.  Lives on the compute thread;
// the payloads do not.
class RoundPart {
 public:
  // The caller keeps the gradient's memory until released() is notified.
  RoundPart(const PartOptions& options, const RoundShape& shape,
            BlockPool& pool);

  const PartOptions& options() const { return options_; }
  // [shards]; null where the shard is empty.
  const std::vector<std::shared_ptr<RoundPayload>>& payloads() const {
    return payloads_;
  }
  // Values [begin, all) do not change any more; begin never grows.  Encodes,
  // checks and hashes the chunks that are whole now: one pass over them.
  void MarkReady(size_t begin);
  // One a shard, when all is ready.  With NaN or infinity in it samples are 0,
  // unless it lies.
  std::vector<PartOffer> Offers(int64_t samples) const;

  // False: others will refuse what was offered as usable.
  bool honest() const { return finite_ ? !options_.corrupts : !options_.lies; }

  // Drops the payloads.  Notified when all others who had them did too.
  void Release();
  const absl::Notification& released() const { return *released_; }

 private:
  void MarkChunk(int shard, int chunk);

  const PartOptions options_;
  const RoundShape shape_;
  // Notified by whoever is the last to drop the gradient's memory; shared with
  // that.
  const std::shared_ptr<absl::Notification> released_;
  std::vector<std::shared_ptr<RoundPayload>> payloads_;
  std::vector<int> marked_from_;  // [shards] chunks from here on are ready
  bool finite_ = true;
};

// XXH3-64 of one piece of memory.
uint64_t HashBytes(absl::Span<const uint8_t> bytes);

// Marks all chunks ready, with their hashes.
void MarkAllReady(RoundPayload& payload);

}  // namespace paceline
