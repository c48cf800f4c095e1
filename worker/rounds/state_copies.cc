#include "worker/rounds/state_copies.h"

#include <utility>

#include "core/obs/log.h"

namespace paceline {

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
