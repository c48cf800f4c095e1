// Leveller finds out, for a new view, what its members have applied and hold,
// and which result all must hold before rounds go on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/round/message.h"

namespace paceline {

// Levels one view.  It decides nothing before every member has answered, since
// a silent member may hold a result that another one has applied already.  Only
// a further view removes a silent member.  Thread-compatible.
class Leveller {
 public:
  enum class Phase : uint8_t {
    kAsking,     // answers are missing
    kFetching,   // the bytes of the target are elsewhere
    kSpreading,  // holds of the target are missing
    kDone,
  };

  explicit Leveller(const View& view) : view_(view) {}

  // Stores a member's first answer.  A later one replaces it only if the member
  // has applied more since (by a late message of its old view).  Returns true
  // when it was the last missing one.
  bool OnAnswer(const MemberId& from, const Answer& answer);
  // The leveller has applied `next` steps now, by a late message of its old
  // view, and the last of them is the target.  All members that this step
  // counted therefore hold the target: the leveller need not fetch or spread
  // its bytes.  Returns true if the leveller is done.
  bool OnApplied(int64_t next, uint64_t hash);
  // The target's bytes are here.
  void OnBytes();
  // Returns true when it was the last missing hold of the members that the step
  // counts.
  bool OnHold(const MemberId& from, uint64_t hash);

  Phase phase() const { return phase_; }
  // Steps that the furthest member has applied; all apply as many.
  int64_t applied() const { return applied_; }
  const MemberId& furthest() const { return furthest_; }  // one that has
  uint64_t applied_hash() const {
    return applied_hash_;
  }  // of the last of them
  // With the answers of all: the result that all must hold, and a member that
  // holds it.  Nothing: no member holds anything beyond `applied`.
  const std::optional<RoundResult>& target() const { return target_; }
  const MemberId& holder() const { return holder_; }
  // Steps that all have applied; in kDone.
  int64_t level_at() const { return applied_ + (target_.has_value() ? 1 : 0); }
  std::vector<MemberId> Missing() const;  // whose answer or hold is awaited

 private:
  void Decide();

  const View view_;
  Phase phase_ = Phase::kAsking;
  std::map<MemberId, Answer> answers_;
  int64_t applied_ = 0;
  uint64_t applied_hash_ = 0;
  MemberId furthest_;
  std::optional<RoundResult> target_;
  MemberId holder_;
  std::set<MemberId> holds_;
};

}  // namespace paceline
