// Results and copies of the state that have come or are coming, and results
// that this member made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/round/view.h"
#include "worker/block_pool.h"
#include "worker/round_payload.h"
#include "worker/round_shape.h"
#include "worker/round_transport.h"

namespace paceline {

// Thread-safe.
class RoundStore {
 public:
  // pool outlives this.
  RoundStore(const RoundShape& shape, BlockPool& pool)
      : shape_(shape), pool_(pool) {}

  // Memory for what `from` sends, the same one for the same key.  Of one sender
  // the results of a few steps are kept, a few of each, beyond them null; of
  // states one in all, the newest asked for.
  std::shared_ptr<RoundPayload> Incoming(const MemberId& from,
                                         const PayloadKey& key, size_t bytes);

  // A complete result; found by its hash from now on.  variant: under which
  // this member sends it.
  void AddResult(int64_t step, int shard, uint64_t variant,
                 std::shared_ptr<RoundPayload> payload);
  // Complete results that came without a message of their own are found too.
  struct Result {
    std::shared_ptr<RoundPayload> payload;  // null: not here
    uint64_t variant = 0;
  };
  Result FindResult(int64_t step, int shard, uint64_t hash);

  // Results of steps before `step` are dropped.
  void Forget(int64_t step);
  void ForgetState();

 private:
  struct Incomer {
    MemberId from;
    PayloadKey key;
    std::shared_ptr<RoundPayload> payload;
  };
  using ResultId = std::tuple<int64_t, int, uint64_t>;  // step, shard, hash
  using SenderKey = std::pair<PayloadKey, MemberId>;    // by step first

  const RoundShape shape_;
  BlockPool& pool_;

  absl::Mutex mutex_;
  std::map<ResultId, Result> results_ ABSL_GUARDED_BY(mutex_);
  std::map<SenderKey, std::shared_ptr<RoundPayload>> incoming_
      ABSL_GUARDED_BY(mutex_);
  Incomer state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
