#include "worker/rounds/parts/round_store.h"

#include <algorithm>

namespace paceline {

std::shared_ptr<RoundPayload> RoundStore::Incoming(const MemberId& from,
                                                   const PayloadKey& key) {
  const absl::MutexLock lock(&mutex_);
  const auto found = incoming_.find({key, from});
  if (found != incoming_.end()) return found->second;
  int variants = 0;
  std::set<int64_t> steps = {key.step};
  for (const auto& [sender, payload] : incoming_) {
    if (sender.second != from) continue;
    steps.insert(sender.first.step);
    variants +=
        sender.first.step == key.step && sender.first.shard == key.shard;
  }
  if (variants >= limits_.variants || steps.size() > limits_.steps) {
    return nullptr;
  }
  std::shared_ptr<RoundPayload> payload = shape_.Make(key.shard, pool_);
  incoming_[{key, from}] = payload;
  return payload;
}

void RoundStore::AddResult(int64_t step, int shard, uint64_t variant,
                           std::shared_ptr<RoundPayload> payload) {
  const uint64_t hash = payload->hash();
  const absl::MutexLock lock(&mutex_);
  results_.try_emplace({step, shard, hash},
                       Result{std::move(payload), variant});
}

RoundStore::Result RoundStore::FindResult(int64_t step, int shard,
                                          uint64_t hash) {
  if (shape_.values(shard) == 0) return {pool_.Make(0), hash};
  const absl::MutexLock lock(&mutex_);
  const auto found = results_.find({step, shard, hash});
  if (found != results_.end()) return found->second;
  for (const auto& [sender, payload] : incoming_) {
    const PayloadKey& key = sender.first;
    if (key.step != step || key.shard != shard || !payload->complete() ||
        payload->hash() != hash) {
      continue;
    }
    return results_[{step, shard, hash}] = Result{payload, hash};
  }
  return {};
}

void RoundStore::Forget(int64_t step) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  const absl::MutexLock lock(&mutex_);
  while (!results_.empty() && std::get<0>(results_.begin()->first) < step) {
    dropped.push_back(std::move(results_.begin()->second.payload));
    results_.erase(results_.begin());
  }
  std::erase_if(incoming_, [&](auto& each) {
    if (each.first.first.step >= step) return false;
    dropped.push_back(std::move(each.second));
    return true;
  });
}

void RoundStore::Retain(const std::vector<GroupWorker>& peers) {
  const auto is_gone = [&peers](const MemberId& from) {
    return std::none_of(
        peers.begin(), peers.end(),
        [&from](const GroupWorker& peer) { return peer.id == from; });
  };
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  const absl::MutexLock lock(&mutex_);
  std::erase_if(incoming_, [&](auto& each) {
    if (!is_gone(each.first.second)) return false;
    dropped.push_back(std::move(each.second));
    return true;
  });
}

}  // namespace paceline
