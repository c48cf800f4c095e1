// RoundStore keeps payloads of peers that have come or are coming, and results
// that this member made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/cluster/run_order.h"
#include "core/round/view.h"
#include "worker/rounds/parts/round_part.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_transport.h"

namespace paceline {

// The most payloads of one sender at a time.
struct StoreLimits {
  size_t steps = 0;
  int variants = 0;  // of one step and shard
};

// Thread-safe.
class RoundStore {
 public:
  // pool outlives this.
  RoundStore(const RoundShape& shape, BlockPool& pool,
             const StoreLimits& limits)
      : shape_(shape), pool_(pool), limits_(limits) {}

  // Memory for a payload of `from`, the same for the same key.  Null: the
  // sender has reached its limits.
  std::shared_ptr<RoundPayload> Incoming(const MemberId& from,
                                         const PayloadKey& key);

  // Adds a complete result, which is found by its hash from now on.
  // variant: the one under which this member sends it.
  void AddResult(int64_t step, int shard, uint64_t variant,
                 std::shared_ptr<RoundPayload> payload);
  // FindResult() also finds complete results that came without a message.
  struct Result {
    std::shared_ptr<RoundPayload> payload;  // null: not here
    uint64_t variant = 0;
  };
  Result FindResult(int64_t step, int shard, uint64_t hash);

  // Drops all payloads of steps before `step`.
  void Forget(int64_t step);
  // Drops what senders that are not among `peers` have sent.
  void Retain(const std::vector<GroupWorker>& peers);

 private:
  using ResultId = std::tuple<int64_t, int, uint64_t>;  // step, shard, hash
  using SenderKey = std::pair<PayloadKey, MemberId>;

  const RoundShape shape_;
  BlockPool& pool_;
  const StoreLimits limits_;

  absl::Mutex mutex_;
  std::map<ResultId, Result> results_ ABSL_GUARDED_BY(mutex_);
  std::map<SenderKey, std::shared_ptr<RoundPayload>> incoming_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
