#include "worker/gossip_store.h"

#include <algorithm>

namespace paceline {
namespace {

bool IsState(const PayloadKey& key) {
  return key.kind == PayloadKey::Kind::kState;
}

// Moves what `is_over` names out of `from`: it is freed without a lock.
template <typename Payloads, typename Predicate>
Payloads TakeOut(Payloads& from, const Predicate& is_over) {
  Payloads out;
  for (auto it = from.begin(); it != from.end();) {
    const auto each = it++;
    if (is_over(each->first)) out.insert(from.extract(each));
  }
  return out;
}

}  // namespace

std::shared_ptr<RoundPayload> GossipStore::Incoming(const MemberId& from,
                                                    const PayloadKey& key,
                                                    size_t bytes) {
  Payloads dropped;
  const absl::MutexLock lock(&mutex_);
  if (const auto found = incoming_.find({from, key});
      found != incoming_.end()) {
    return found->second;
  }
  const auto is_alike = [&](const SenderKey& each) {
    return each.first == from && IsState(each.second) == IsState(key);
  };
  if (IsState(key)) {
    dropped = TakeOut(incoming_, is_alike);  // a newer copy is as good
  } else if (std::count_if(incoming_.begin(), incoming_.end(),
                           [&](const auto& each) {
                             return is_alike(each.first);
                           }) >= kMostSteps) {
    return nullptr;
  }
  return incoming_[{from, key}] = pool_.Make(bytes);
}

void GossipStore::Forget(int64_t step) {
  Payloads dropped;
  const absl::MutexLock lock(&mutex_);
  dropped = TakeOut(incoming_, [step](const SenderKey& each) {
    return !IsState(each.second) && each.second.step < step;
  });
}

void GossipStore::ForgetStates() {
  Payloads dropped;
  const absl::MutexLock lock(&mutex_);
  dropped = TakeOut(incoming_,
                    [](const SenderKey& each) { return IsState(each.second); });
}

void GossipStore::Retain(const std::vector<GroupWorker>& peers) {
  Payloads dropped;
  const absl::MutexLock lock(&mutex_);
  dropped = TakeOut(incoming_, [&peers](const SenderKey& each) {
    return std::none_of(
        peers.begin(), peers.end(),
        [&each](const GroupWorker& peer) { return peer.id == each.first; });
  });
}

}  // namespace paceline
