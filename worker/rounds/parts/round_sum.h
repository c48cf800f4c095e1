// RoundSum checks the parts of the shards that this member serves, and sums
// them while other parts are still coming.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/os/thread.h"
#include "core/round/round_member.h"
#include "core/round/rules/rule.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {

// The state machine asks for this; rule.h has a function of that name.
using SumRequest = struct Aggregate;

// The outcome of the checks of a part at the border.
enum class PartCheck : uint8_t { kFine, kNotFinite, kWrongHash };

// A rule's result of the parts of a shard.
struct SumVerdict {
  int64_t divisor = 0;                // of the sum; 0: there is none
  std::string why;                    // why there is none
  std::vector<MemberId> dropped;      // whose parts were left out of it
  std::optional<double> cosine = {};  // between the parts, of shard 0
};

// Gets RoundSum's events, on its thread; must be quick.
class SumSink {
 public:
  virtual ~SumSink() = default;
  // The part that this message offers was checked.
  virtual void OnPartChecked(const RoundMessage& offer, PartCheck check) = 0;
  // The rule has decided: chunks of `sum` get ready from now on, or are ready
  // already.
  virtual void OnDecided(const SumRequest& request,
                         std::shared_ptr<RoundPayload> sum) = 0;
  // The sum is whole; null: the rule could make nothing of these parts.
  virtual void OnSummed(const SumRequest& request,
                        std::shared_ptr<RoundPayload> sum,
                        const SumVerdict& verdict) = 0;
};

struct RoundSumOptions {
  RuleSpec rule;
  // zeno without gamma: the learning rate of a step.
  std::function<double(int64_t step)> learning_rate = nullptr;
  bool conflict = false;  // measure SumVerdict::cosine
};

// Thread-safe; has a thread, "aggregate", for everything that reads bytes.
//
// mean sums ahead: a chunk that all members of a step have sent is summed at
// once, by id, so that little is left to do when the last part is whole.  A sum
// of other contributors begins anew.  The coordinate-wise rules need the
// samples first, which come last; the other rules need whole parts.
class RoundSum {
 public:
  // All references outlive this.  loss: zeno's, called on the thread.
  RoundSum(const RoundSumOptions& options, const RoundShape& shape,
           BlockPool& pool, TrustedLoss& loss, SumSink& sink);
  ~RoundSum();

  // Errors: InvalidArgument  the rule or its numbers
  absl::Status CheckRule() const;

  // Adds the bytes of a part, complete or on their way; a repetition is
  // ignored.  payload: not null, of the shard's size.
  void AddPart(int64_t step, int shard, const MemberId& member,
               std::shared_ptr<RoundPayload> payload);
  std::shared_ptr<RoundPayload> FindPart(int64_t step, int shard,
                                         const MemberId& member) const;

  // This member serves the shard of that step, which counts `members`.
  void Expect(int64_t step, int shard, std::vector<MemberId> members);

  // Checks a part whose bytes are complete, then calls OnPartChecked().
  void Check(RoundMessage offer) {
    aggregate_.Post([this, offer = std::move(offer)] { DoCheck(offer); });
  }
  // Sums the shard, and calls OnDecided() and OnSummed(); OnSummed() alone if
  // there is no sum, as with a part that was refused.
  void Close(SumRequest request) {
    aggregate_.Post([this, request = std::move(request)] { DoClose(request); });
  }

  // Drops parts and sums of steps before `step`.
  void Forget(int64_t step);
  // Drops parts of processes that are not in `members`.
  void Retain(const std::set<MemberId>& members);

  // Takes no more parts, and ends the thread.  Safe to repeat.
  void Stop();

 private:
  using ShardOfStep = std::pair<int64_t, int>;

  // A part, and the results of its checks.
  struct Part {
    std::shared_ptr<RoundPayload> payload;
    // Only the aggregate thread uses the checks.
    std::vector<bool> looked_at;  // [chunks]
    bool finite = true;
  };
  // A sum that is made while parts come.
  struct Ahead {
    std::vector<MemberId> members;
    std::map<MemberId, std::shared_ptr<Part>> parts;
    std::shared_ptr<RoundPayload> sum;
    std::vector<int> arrived;  // [chunks]: how many parts have it
  };
  // mutex_ guards all of it, and the elements' own fields except those that
  // only the aggregate thread uses.
  struct Shard {
    std::map<MemberId, std::shared_ptr<Part>> parts;
    std::shared_ptr<Ahead> ahead;  // closures hold it weakly
  };

  bool sums_ahead() const { return TraitsOf(options_.rule.name).sums_ahead; }
  bool reads_whole_parts() const {
    return TraitsOf(options_.rule.name).reads_whole_parts;
  }
  // Null: it is not here.
  std::shared_ptr<Part> Find(int64_t step, int shard,
                             const MemberId& member) const;
  void Join(const std::shared_ptr<Ahead>& ahead, const MemberId& member,
            std::shared_ptr<Part> part);
  void OnChunk(const std::weak_ptr<Ahead>& ahead, int chunk);

  // On the aggregate thread.
  struct Combination {
    std::unique_ptr<Rule> rule;
    RuleVerdict verdict;
    std::vector<std::shared_ptr<Part>> parts;  // by member
    std::vector<int64_t> samples;
    // Whole parts as float32, if the rule reads whole parts and the codec is
    // another one.
    std::vector<std::vector<float>> decoded;
  };
  void SumAhead(const std::shared_ptr<Ahead>& ahead, int chunk);
  void DoCheck(const RoundMessage& message);
  void DoClose(const SumRequest& request);
  absl::StatusOr<std::unique_ptr<Rule>> RuleOf(int64_t step) const;
  absl::StatusOr<Combination> Decide(const SumRequest& request);
  absl::Status TakeParts(const SumRequest& request, Combination& combination);
  std::vector<RulePart> WholeParts(const Combination& combination) const;
  std::shared_ptr<RoundPayload> FindAhead(const SumRequest& request) const;
  bool LookAt(Part& part);
  void LookAt(Part& part, int chunk);
  bool IsFinite(absl::Span<const uint8_t> bytes);  // values as on the wire
  void SumChunk(const Combination& combination, int chunk, RoundPayload& sum);
  std::optional<double> CosineOf(const Combination& combination);
  void SumDecoded(const Combination& combination, int chunk,
                  absl::Span<uint8_t> bytes);

  const RoundSumOptions options_;
  const RoundShape shape_;
  BlockPool& pool_;
  TrustedLoss& loss_;
  SumSink& sink_;
  std::vector<float> scratch_;  // of the aggregate thread: decoded values

  mutable absl::Mutex mutex_;
  std::map<ShardOfStep, Shard> shards_ ABSL_GUARDED_BY(mutex_);
  int64_t first_step_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  TaskLoop aggregate_;
};

}  // namespace paceline
