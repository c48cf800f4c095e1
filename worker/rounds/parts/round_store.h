// RoundStore keeps payloads of peers that have come or are coming, and results
// that this member made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/cluster/run_order.h"
#include "core/round/message.h"
#include "core/round/view.h"
#include "worker/rounds/parts/round_part.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/rounds/parts/round_turn.h"

namespace paceline {

// The most payloads of one sender at a time; its state does not count.
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
  // sender has reached its limits.  The store keeps one state in all, the one
  // that was asked for last.
  std::shared_ptr<RoundPayload> Incoming(const MemberId& from,
                                         const PayloadKey& key, size_t bytes);

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

  // Drops all payloads of steps before `step`, except the state.
  void Forget(int64_t step);
  void ForgetState();
  // Drops what senders that are not among `peers` have sent.
  void Retain(const std::vector<GroupWorker>& peers);

 private:
  struct Incomer {
    MemberId from;
    PayloadKey key;
    std::shared_ptr<RoundPayload> payload;
  };
  using ResultId = std::tuple<int64_t, int, uint64_t>;  // step, shard, hash
  using SenderKey = std::pair<PayloadKey, MemberId>;

  const RoundShape shape_;
  BlockPool& pool_;
  const StoreLimits limits_;

  absl::Mutex mutex_;
  std::map<ResultId, Result> results_ ABSL_GUARDED_BY(mutex_);
  std::map<SenderKey, std::shared_ptr<RoundPayload>> incoming_
      ABSL_GUARDED_BY(mutex_);
  Incomer state_ ABSL_GUARDED_BY(mutex_);
};

// Thread-compatible.
class StateCopies {
 public:
  // Both outlive this.
  StateCopies(RoundTransport& transport, RoundTurns& turns)
      : transport_(transport), turns_(turns) {}

  // `to` asks for a copy; it has reported `heard` steps, and this member has
  // `now`.  It gets the same copy again until it reports that copy's steps, and
  // while no newer state exists, since a new copy would begin from its first
  // byte.  Else the compute thread makes a new one.
  void OnWanted(const MemberId& to, int64_t heard, int64_t now);

  // The compute thread made a copy for all that have asked.  message: a Copy.
  void OnCopied(const RoundMessage& message,
                std::shared_ptr<RoundPayload> state);

  // Drops copies for all others: one is as large as the model and its
  // optimizer.
  void Retain(const std::set<MemberId>& joiners);
  // Drops the copies that `has` says have come: has(joiner, steps in its copy).
  void Drop(const std::function<bool(const MemberId&, int64_t)>& has);

 private:
  struct Sent {
    RoundMessage message;
    PayloadKey key;
    std::shared_ptr<RoundPayload> state;
  };

  RoundTransport& transport_;
  RoundTurns& turns_;
  std::set<MemberId> wanted_;
  std::map<MemberId, Sent> sent_;
};

}  // namespace paceline
