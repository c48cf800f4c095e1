// Memory for the parameters and states that peers of a gossip job send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/cluster/run_order.h"
#include "core/round/view.h"
#include "worker/block_pool.h"
#include "worker/round_payload.h"
#include "worker/round_transport.h"

namespace paceline {

// Thread-safe.
class GossipStore {
 public:
  // Steps whose parameters of one sender are kept at a time: the one that it
  // meets this member in, and the next one where its word comes first.
  static constexpr int kMostSteps = 2;

  // pool outlives this.
  explicit GossipStore(BlockPool& pool) : pool_(pool) {}

  // The same memory for the same key of the same sender.  Null: this sender's
  // is all taken, by steps that this member has not come to.
  std::shared_ptr<RoundPayload> Incoming(const MemberId& from,
                                         const PayloadKey& key, size_t bytes);

  // Lets go of parameters of steps before `step`.
  void Forget(int64_t step);
  // And of all states: one was taken.
  void ForgetStates();
  // Those of others are gone.
  void Retain(const std::vector<GroupWorker>& peers);

 private:
  using SenderKey = std::pair<MemberId, PayloadKey>;
  using Payloads = std::map<SenderKey, std::shared_ptr<RoundPayload>>;

  BlockPool& pool_;

  absl::Mutex mutex_;
  Payloads incoming_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
