#include "worker/rpc/round_queue.h"

#include <algorithm>
#include <utility>

namespace paceline {

RoundQueue::Ticket RoundQueue::AddPayload(
    const PayloadKey& key, std::shared_ptr<RoundPayload>* payload) {
  Sending& sending = payloads_[key];
  if (sending.payload == *payload) return 0;
  std::swap(sending.payload, *payload);
  sending.ticket = next_ticket_++;
  sending.ready.clear();
  sending.taken = 0;
  sending.messages.clear();
  sending.wanted = true;
  return sending.ticket;
}

void RoundQueue::OnReady(const PayloadKey& key, Ticket ticket, int chunk) {
  const auto found = payloads_.find(key);
  if (found == payloads_.end() || found->second.ticket != ticket) return;
  found->second.ready.push_back(chunk);
}

void RoundQueue::Add(std::deque<std::string>* messages, std::string message) {
  if (std::find(messages->begin(), messages->end(), message) !=
      messages->end()) {
    return;
  }
  messages->push_back(std::move(message));
  if (messages->size() > kMostMessages) messages->pop_front();
}

void RoundQueue::AddMessage(std::string message) {
  Add(&messages_, std::move(message));
}

void RoundQueue::AddMessage(std::string message, const PayloadKey& key) {
  const auto found = payloads_.find(key);
  // Forgotten between the bytes and their message, by another thread.
  if (found == payloads_.end()) return;
  found->second.wanted = true;
  Add(&found->second.messages, std::move(message));
}

std::optional<RoundQueue::Item> RoundQueue::TakeNext(int most_chunks) {
  if (!messages_.empty()) {
    Item item;
    item.message = std::move(messages_.front());
    messages_.pop_front();
    return item;
  }
  for (auto& [key, sending] : payloads_) {
    if (sending.messages.empty() || !sending.sent()) continue;
    Item item{std::move(sending.messages.front()), key, sending.payload, -1};
    sending.messages.pop_front();
    sending.wanted = !sending.messages.empty();
    return item;
  }
  if (most_chunks == 0) return std::nullopt;
  // The payload behind the last one is the first to be asked.
  auto at = payloads_.upper_bound(last_);
  for (size_t i = 0; i < payloads_.size(); ++i, ++at) {
    if (at == payloads_.end()) at = payloads_.begin();
    Sending& sending = at->second;
    if (!sending.wanted || sending.taken == sending.ready.size()) continue;
    last_ = at->first;
    Item item{{}, at->first, sending.payload, sending.ready[sending.taken]};
    while (item.chunks < most_chunks && sending.taken < sending.ready.size() &&
           sending.ready[sending.taken] == item.chunk + item.chunks) {
      ++item.chunks;
      ++sending.taken;
    }
    return item;
  }
  return std::nullopt;
}

void RoundQueue::OnBroken() {
  for (auto& [key, sending] : payloads_) sending.taken = 0;
}

std::vector<std::shared_ptr<RoundPayload>> RoundQueue::DropOlderStates(
    const PayloadKey& key) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  if (key.kind != PayloadKey::Kind::kState) return dropped;
  std::erase_if(payloads_, [&key, &dropped](auto& entry) {
    if (entry.first.kind != key.kind || entry.first.step >= key.step) {
      return false;
    }
    dropped.push_back(std::move(entry.second.payload));
    return true;
  });
  return dropped;
}

std::vector<std::shared_ptr<RoundPayload>> RoundQueue::Forget(int64_t step) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  std::erase_if(payloads_, [step, &dropped](auto& entry) {
    auto& [key, sending] = entry;
    const bool state = key.kind == PayloadKey::Kind::kState;
    if (key.step >= step || (state && sending.wanted)) return false;
    dropped.push_back(std::move(sending.payload));
    return true;
  });
  return dropped;
}

}  // namespace paceline
