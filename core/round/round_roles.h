// The roles that a member has beside its own way through a round: Gather
// collects the parts of one shard on its server, from the first part to the
// result, with a Deadline; Leveller finds out, for a new view, what its members
// have applied and hold, and which result all must hold before rounds go on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/round/message.h"

namespace paceline {

// Uses the median and the median absolute deviation, which tolerate that one
// arrival in two is far off; means and variances do not.
struct DeadlinePolicy {
  absl::Duration floor = absl::Milliseconds(50);
  // The wait is at least this share of the time from the last step to a round's
  // first part.  A member that computes for ten seconds, or has just evaluated,
  // varies by more than 50 ms.
  double share = 0.25;
  // The wait before anything is known, and the longest one.
  absl::Duration ceiling = absl::Seconds(30);
  double deviations = 6;  // k of median + k * MAD
  int remembered = 64;    // arrivals that count
};

// Adapts to the arrivals of earlier rounds, counted from a round's first part.
// Thread-compatible.
class Deadline {
 public:
  explicit Deadline(const DeadlinePolicy& policy) : policy_(policy) {}

  void Add(const std::vector<absl::Duration>& arrivals);
  // The wait after a first part, which came `first` after the last step.
  absl::Duration Get(absl::Duration first) const;

 private:
  absl::Duration Compute() const;  // without the floor

  const DeadlinePolicy policy_;
  std::deque<absl::Duration> arrivals_;  // oldest first
  // Cached, since a server asks for it with every part.
  mutable std::optional<absl::Duration> computed_;
};

// Collects parts until the set of contributors is closed; from then on the set
// never changes.  It reads no clock: its state depends on its calls alone.
// Thread-compatible.
class Gather {
 public:
  // members: those that this round counts, by id.  since: when the last step
  // was applied.
  Gather(int shard, std::vector<MemberId> members, Instant since)
      : shard_(shard), members_(std::move(members)), since_(since) {}

  bool Counts(const MemberId& member) const {
    return std::binary_search(members_.begin(), members_.end(), member);
  }
  // Takes the part of one of the members.  Its first offer counts; offers after
  // the close are late.  False: the offer is a repetition, or late.
  bool Add(const MemberId& from, const PartOffer& offer, Instant now);

  // Closes when all members have offered, or `deadline` after the first part
  // with at least min_parts usable ones.  True: this call has closed it.
  bool TryClose(int min_parts, absl::Duration deadline, Instant now);

  // When TryClose() can close without further parts.  Nothing: too few parts
  // are here, or it is closed.
  std::optional<Instant> DueAt(int min_parts, absl::Duration deadline) const;

  // From the last step to the first part; 0: none has come.
  absl::Duration first_after() const {
    return first_.has_value() ? *first_ - since_ : absl::ZeroDuration();
  }

  // After the close: the members whose parts are summed, by id.  Empty if fewer
  // than min_parts parts were usable: the round is void.
  const std::vector<Contributor>& contributors() const { return contributors_; }
  bool is_void() const { return void_; }

  // Sets the sum of the contributors' parts; divisor 0: there is no sum, and
  // the round is void.  The gather must be closed, and not void.
  void SetResult(uint64_t hash, int64_t divisor);
  const std::optional<ShardResult>& result() const { return result_; }

 private:
  // The division with the most samples; parts of two divisions may have
  // micro-batches in common.
  uint64_t division() const;
  static bool IsUsable(const PartOffer& part, uint64_t division) {
    return part.samples > 0 && part.division == division;
  }
  int64_t usable() const;

  const int shard_;
  const std::vector<MemberId> members_;
  const Instant since_;
  std::map<MemberId, PartOffer> parts_;
  std::optional<Instant> first_;
  std::vector<absl::Duration> arrivals_;  // in order; then the missing
  bool closed_ = false;
  bool void_ = false;
  std::vector<Contributor> contributors_;
  std::optional<ShardResult> result_;
};

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
  void OnBytes() {
    if (phase_ == Phase::kFetching) phase_ = Phase::kSpreading;
  }
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
