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

  bool closed() const { return closed_; }
  // After the close: the members whose parts are summed, by id.  Empty if fewer
  // than min_parts parts were usable: the round is void.
  const std::vector<Contributor>& contributors() const { return contributors_; }
  bool is_void() const { return void_; }
  std::vector<MemberId> Missing() const;  // that have not offered, by id

  // Sets the sum of the contributors' parts; divisor 0: there is no sum, and
  // the round is void.  The gather must be closed, and not void.
  void SetResult(uint64_t hash, int64_t divisor);
  const std::optional<ShardResult>& result() const { return result_; }

 private:
  // The division with the most samples; parts of two divisions may have
  // micro-batches in common.
  uint64_t division() const;
  static bool IsUsable(const PartOffer& part, uint64_t division);
  int usable() const;
  void Close(int min_parts);

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

}  // namespace paceline
