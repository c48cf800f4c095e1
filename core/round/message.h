// Messages that the members of a group send each other.  They are values;
// payloads (parts, results) travel beside them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "core/round/view.h"

namespace paceline {

// A member offers its gradient of one shard, or says that it has none.
struct PartOffer {
  int64_t step = 0;
  int shard = 0;
  // Labels that the sum covers; 0: this member has nothing usable in this step
  // (its gradient was not finite, or it computed nothing).
  int64_t samples = 0;
  uint64_t hash = 0;  // of the bytes
  // Names how the batch was divided among members when this one began to
  // compute: parts of one division have no micro-batch in common, parts of two
  // may.  See DivisionOf().
  uint64_t division = 0;
  // With samples 0, for people: the gradient held NaN or infinity.
  bool not_finite = false;

  friend bool operator==(const PartOffer&, const PartOffer&) = default;
};

struct Contributor {
  MemberId member;
  int64_t samples = 0;

  friend bool operator==(const Contributor&, const Contributor&) = default;
};

// The result that a shard's server has made of the parts.
struct ShardResult {
  int shard = 0;
  bool is_void = false;  // no member applies anything in this step
  uint64_t hash = 0;     // of the bytes; 0: void
  std::vector<Contributor> contributors;  // by id
  // The sum is to be divided by this (RuleVerdict::divisor); 0: void.
  int64_t divisor = 0;
  // How long after the first part each one came: deadlines adapt to it.  For
  // parts that were missing at the close, twice the time until then.
  std::vector<absl::Duration> arrivals;

  friend bool operator==(const ShardResult&, const ShardResult&) = default;
};

// The results of all shards: a member holds this, and then applies it.
struct RoundResult {
  int64_t step = 0;
  ViewId view;  // in which it was held
  std::vector<ShardResult> shards;
  // Set in a final one: all members that the step counts are known to have had
  // the same state after so many steps.  Less than `step` where a hash was
  // late.  0 in an Apply of a member whose state was not among them.
  int64_t compared_through = 0;

  bool is_void() const;
  uint64_t hash() const;  // over all shards, outcomes and contributors

  friend bool operator==(const RoundResult&, const RoundResult&) = default;
};

// Asks a shard's server for its result: the asker has no part to offer yet.
struct Want {
  int64_t step = 0;
  int shard = 0;
};

// A shard's server sends its result to all.
struct Spread {
  int64_t step = 0;
  ShardResult result;
};

// A member holds a result.  Goes to the server of shard 0, or to the leveller.
struct Hold {
  int64_t step = 0;
  uint64_t hash = 0;  // RoundResult::hash()
  // The hash of parameters, optimizer and buffers after `state_step` steps,
  // where that is known already.
  int64_t state_step = 0;
  uint64_t state_hash = 0;  // 0: not known
};

// The result with this hash is final; apply it.
struct Commit {
  int64_t step = 0;
  uint64_t hash = 0;
  int64_t compared_through = 0;  // RoundResult::compared_through
};

// A final result, whole, for members that lack it.
struct Committed {
  RoundResult result;
};

// Answers a question about a step long past: only the whole state helps.
struct TooOld {
  int64_t step = 0;
};

// A member tells the leveller its state when it has adopted a view.
struct Answer {
  int64_t next = 0;        // steps applied
  uint64_t last_hash = 0;  // of the last one's result; 0: not known
  std::optional<RoundResult> held;
};

// The leveller asks for the bytes of what a member holds.
struct Fetch {
  int64_t step = 0;
  uint64_t hash = 0;
};
struct Fetched {
  RoundResult result;
};

// The leveller tells all to apply the results that any member has applied, and
// then to hold this one.
struct Level {
  RoundResult result;
};

// The leveller tells all that the view is level, so that rounds go on.
struct LevelDone {};

// A joiner asks a donor for its state.  The donor answers that its state after
// `next` steps can be fetched from it, piece by piece.
struct StateRequest {};
struct StateOffer {
  int64_t next = 0;
  uint64_t last_hash = 0;  // of the last one's result
  uint64_t state_hash = 0;
};

// Gossip (gossip_member.h): a member's parameters after its own update of
// `step`, to be averaged with those of its partner.
struct ParameterOffer {
  int64_t step = 0;
  uint64_t hash = 0;  // of the bytes
};

// The partner's answer to the offer.
struct ParameterAnswer {
  // Values are those of paceline.v1.ParameterAnswer.Verdict.
  enum class Verdict : uint8_t {
    kTaken = 1,         // they are here, whole, and may be averaged
    kNotFinite = 2,     // NaN or infinity in them
    kWrongBytes = 3,    // they are not the bytes that the offer names
    kOtherPartner = 4,  // the answering member meets another in that step
    kPast = 5,          // the answering member is done with that step
    kBehind = 6,        // the answering member is too far behind to keep them
  };
  int64_t step = 0;
  uint64_t hash = 0;  // as offered
  Verdict verdict = Verdict::kTaken;
};

using Body =
    std::variant<PartOffer, Want, Spread, Hold, Commit, Committed, TooOld,
                 Answer, Fetch, Fetched, Level, LevelDone, StateRequest,
                 StateOffer, ParameterOffer, ParameterAnswer>;

// Whether the body is one of `Kinds`.
template <typename... Kinds>
bool IsAnyOf(const Body& body) {
  return (std::holds_alternative<Kinds>(body) || ...);
}

struct RoundMessage {
  int64_t attempt = 0;
  ViewId view;  // of the sender
  MemberId from;
  // Steps that the sender has applied, and RoundResult::hash() of the last of
  // them (0: not known): proof that this very result is final.  The number
  // alone proves nothing: an excluded member may go on in a view of its own
  // (core/round/model, `no-hash`).
  int64_t committed_through = 0;
  uint64_t committed_hash = 0;
  Body body;
};

// "part of step 4, shard 1", for people and traces.
std::string MessageText(const RoundMessage& message);

}  // namespace paceline
