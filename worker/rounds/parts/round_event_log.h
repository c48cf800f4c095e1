// RoundEventLog records what happens in rounds: events for the coordinator, and
// numbers for the metrics.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "core/round/message.h"
#include "core/round/view.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/rounds/parts/round_sum.h"

namespace paceline {

// Why a member's part is not in a result.
enum class SkipReason : uint8_t {
  kLate,       // had not come when the round closed
  kLost,       // the member was lost
  kNotFinite,  // NaN or infinity
  kHash,       // not the bytes that its offer names
  kDivision,   // its division of the batch was another one
  kEmpty,      // it had no gradient
  kOutvoted,   // the rule left it out
};
constexpr int kSkipReasons = 7;
const char* SkipReasonName(SkipReason reason);

void AddSkip(const MemberId& member, SkipReason reason,
             v1::RoundRecord& record);

// Upper bounds of RoundStats::durations, in seconds.
inline constexpr std::array<double, 13> kRoundBounds = {
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30};

// Counts, and present values.
struct RoundStats {
  // Adds the counts of another run that is over.
  void AddCounts(const RoundStats& other);

  int64_t committed = 0;
  int64_t void_rounds = 0;
  std::array<int64_t, kSkipReasons> skipped{};  // of rounds served here
  int64_t refused_results = 0;                  // hash and bytes differ
  int64_t refused_messages = 0;                 // malformed, or not of this job
  int64_t mismatches = 0;                       // of states, found here
  int64_t takeovers = 0;  // rounds committed here for a server that was lost
  // [i]: the rounds that took at most kRoundBounds[i] and more than the bound
  // before, from the first part seen on; the last one: more than all bounds.
  std::array<int64_t, kRoundBounds.size() + 1> durations{};
  double seconds = 0;  // of all these
  int32_t last_contributors = 0;
  bool serves = false;           // some shard of the open step
  double deadline_seconds = 0;   // of the last round that it served
  std::optional<double> cosine;  // of that round, where it is measured
};

// The counts of all runs of a process.
struct RoundReading {
  bool in_group = false;  // else there are no present values
  RoundStats stats;
};

// Its state depends on its calls alone.  Thread-compatible.
class RoundEventLog {
 public:
  RoundEventLog(MemberId self, ServerMode mode) : self_(self), mode_(mode) {}

  // The member has adopted a view while step `next` was open.  lost_at: when
  // the link to a member broke, or now.
  void OnView(const std::optional<View>& before, const View& after,
              int64_t next,
              const std::function<Instant(const MemberId&)>& lost_at);
  void OnOffer(const MemberId& from, const PartOffer& offer, PartCheck check,
               Instant now);
  // The rule has judged the parts of a shard that this member serves; the parts
  // of `dropped` had come, and are not in the result.  cosine: between the
  // parts of shard 0, where it was measured.
  void OnJudged(const std::vector<MemberId>& dropped,
                std::optional<double> cosine) {
    outvoted_ = dropped;
    if (cosine.has_value()) cosine_ = cosine;
  }
  // The record, if this member committed the result or levelled it.  running:
  // it was applied in a round; else while levelling.
  std::optional<v1::RoundRecord> OnApply(const RoundResult& result,
                                         const std::optional<View>& view,
                                         bool running, Instant now,
                                         int64_t unix_ms);

  RoundStats& stats() { return stats_; }
  const RoundStats& stats() const { return stats_; }

 private:
  static bool IsUsed(const MemberId& member, const ShardResult& shard);
  std::optional<SkipReason> ReasonFor(const MemberId& member,
                                      const ShardResult& shard) const;
  void AddSkips(const RoundResult& result, const View& view,
                v1::RoundRecord& record);

  const MemberId self_;
  const ServerMode mode_;
  RoundStats stats_;

  // Times of the open step.
  std::optional<Instant> first_;  // part seen
  std::map<MemberId, std::pair<PartOffer, PartCheck>> offers_;
  std::vector<MemberId> outvoted_;
  std::optional<double> cosine_;
  std::set<MemberId> lost_;  // members of the step that a view left out
  MemberId lost_server_;
  Instant lost_at_;
};

}  // namespace paceline
