#include "worker/rounds/parts/round_store.h"

#include <algorithm>

#include "core/obs/log.h"

namespace paceline {

std::shared_ptr<RoundPayload> RoundStore::Incoming(const MemberId& from,
                                                   const PayloadKey& key,
                                                   size_t bytes) {
  std::shared_ptr<RoundPayload> dropped;
  const absl::MutexLock lock(&mutex_);
  if (key.kind == PayloadKey::Kind::kState) {
    if (state_.payload == nullptr || state_.from != from || state_.key != key) {
      dropped = std::move(state_.payload);
      state_ = {from, key, pool_.Make(bytes)};
    }
    return state_.payload;
  }
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
  if (!is_gone(state_.from)) return;
  dropped.push_back(std::move(state_.payload));
  state_ = {};
}

void RoundStore::ForgetState() {
  Incomer dropped;
  const absl::MutexLock lock(&mutex_);
  std::swap(dropped, state_);
}

void StateCopies::OnWanted(const MemberId& to, int64_t heard, int64_t now) {
  const auto found = sent_.find(to);
  if (found != sent_.end() &&
      (heard < found->second.key.step || found->second.key.step == now)) {
    const Sent& sent = found->second;
    return transport_.Send(to, sent.message, sent.key, sent.state);
  }
  sent_.erase(to);
  const bool asked = !wanted_.empty();
  wanted_.insert(to);
  if (asked) return;
  RoundTurn turn;
  turn.kind = RoundTurn::Kind::kCopy;
  turns_.Push(std::move(turn));
}

void StateCopies::OnCopied(const RoundMessage& message,
                           std::shared_ptr<RoundPayload> state) {
  const auto& copy = std::get<Copy>(message.body);
  for (const MemberId& to : std::exchange(wanted_, {})) {
    Sent& sent = sent_[to];
    sent.message = message;
    sent.key = {PayloadKey::Kind::kState, copy.next, 0, copy.state_hash};
    sent.state = state;
    transport_.Send(to, message, sent.key, state);
    Log(LogLevel::kInfo, "sends a joiner a copy of the state",
        {{"worker", to.worker.value},
         {"step", copy.next},
         {"bytes", state->size()}});
  }
}

void StateCopies::Retain(const std::set<MemberId>& joiners) {
  std::erase_if(sent_, [&joiners](const auto& each) {
    return joiners.count(each.first) == 0;
  });
  std::erase_if(wanted_, [&joiners](const MemberId& id) {
    return joiners.count(id) == 0;
  });
}

void StateCopies::Drop(
    const std::function<bool(const MemberId&, int64_t)>& has) {
  std::erase_if(sent_, [&has](const auto& each) {
    return has(each.first, each.second.key.step);
  });
}

}  // namespace paceline
