// Copies of a member's state on their way to joiners.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "core/round/message.h"
#include "core/round/view.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"
#include "worker/rounds/round_turn.h"

namespace paceline {

// Thread-compatible.
class StateCopies {
 public:
  // Both outlive this.
  StateCopies(RoundTransport& transport, RoundTurns& turns)
      : transport_(transport), turns_(turns) {}

  // `to` asks, and has `heard` steps as far as it said; this member has `now`.
  // It is sent the same copy again until it is known to have come, and while
  // there is no newer one: another one under its key would begin from its first
  // byte.  Then the compute thread is asked for another one.
  void OnWanted(const MemberId& to, int64_t heard, int64_t now);

  // The compute thread made one, for all who have asked.  message: a Copy.
  void OnCopied(const RoundMessage& message,
                std::shared_ptr<RoundPayload> state);

  // A copy is as large as the model and its optimizer: those for others are let
  // go of.
  void Retain(const std::set<MemberId>& joiners);
  // Lets go of what has come.  has: of a joiner and the steps in its copy.
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
