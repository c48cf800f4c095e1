// Gather collects the parts of one shard of one round on its server, from the
// first part to the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/round/message.h"

namespace paceline {

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
  // Takes the part of one of the members.  The first word of a member stays;
  // what comes after the close is late.  False: it was a repetition, or late.
  bool Add(const MemberId& from, const PartOffer& offer, Instant now);

  // Closes when all members have spoken, or, `deadline` after the first part,
  // with at least min_parts usable ones.  True when it was closed just now.
  bool TryClose(int min_parts, absl::Duration deadline, Instant now);

  // When TryClose could close though nothing comes: nothing, while too few
  // parts are there.
  std::optional<Instant> DueAt(int min_parts, absl::Duration deadline) const;

  // From the last step to the first part; 0: none has come.
  absl::Duration first_after() const {
    return first_.has_value() ? *first_ - since_ : absl::ZeroDuration();
  }

  bool closed() const { return closed_; }
  // After the close: those whose parts are summed, by id; fewer than min_parts
  // mean that the round is void.
  const std::vector<Contributor>& contributors() const { return contributors_; }
  bool is_void() const { return void_; }
  std::vector<MemberId> Missing() const;  // have said nothing, by id

  // The sum of the contributors' parts is there, or (divisor 0) there can be
  // none, and the round is void.  Closed, and not void.
  void SetResult(uint64_t hash, int64_t divisor);
  const std::optional<ShardResult>& result() const { return result_; }

 private:
  // The one with the most samples: parts of two would have micro-batches in
  // common.
  uint64_t division() const;
  static bool IsUsable(const PartOffer& part, uint64_t division);
  int usable() const;
  void Close(int min_parts);

  const int shard_;
  const std::vector<MemberId> members_;
  const Instant since_;
  std::map<MemberId, PartOffer> parts_;
  std::optional<Instant> first_;
  std::vector<absl::Duration> arrivals_;  // in order of arrival, then the late
  bool closed_ = false;
  bool void_ = false;
  std::vector<Contributor> contributors_;
  std::optional<ShardResult> result_;
};

}  // namespace paceline
