// The parts of the shards that this member serves: checked at the border,
// summed while others are still coming.
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
#include "core/base/task_loop.h"
#include "core/round/round_member.h"
#include "core/round/rule.h"
#include "core/round/rule_traits.h"
#include "worker/rounds/round_part.h"
#include "worker/rounds/round_payload.h"

namespace paceline {

// The state machine asks for this; rule.h has a function of that name.
using SumRequest = struct Aggregate;

// The outcome of the checks of a part at the border.
enum class PartCheck : uint8_t { kFine, kNotFinite, kWrongHash };

// A rule's result of the parts of a shard.
struct SumVerdict {
  int64_t divisor = 0;                // of the sum; 0: there is none
  std::string why;                    // there is none
  std::vector<MemberId> dropped;      // whose parts were left out of it
  std::optional<double> cosine = {};  // between the parts, of shard 0
};

// Hears of RoundSum's work, on its thread; quick.
class SumSink {
 public:
  virtual ~SumSink() = default;
  // The part that this message offers was checked.
  virtual void OnPartChecked(const RoundMessage& offer, PartCheck check) = 0;
  // The rule has made up its mind: chunks of `sum` get ready from now on, or
  // are already.
  virtual void OnDecided(const SumRequest& request,
                         std::shared_ptr<RoundPayload> sum) = 0;
  // The sum is whole; none where the rule could make nothing of these parts.
  virtual void OnSummed(const SumRequest& request,
                        std::shared_ptr<RoundPayload> sum,
                        const SumVerdict& verdict) = 0;
};

struct RoundSumOptions {
  RuleSpec rule;
  // zeno without gamma: that of the step.
  std::function<double(int64_t step)> learning_rate = nullptr;
  bool conflict = false;  // measure SumVerdict::cosine
};

// Thread-safe; has a thread, "aggregate", for everything that reads bytes.
//
// mean sums ahead: a chunk that all members of a step have sent is summed at
// once, by id, so that little is left to do when the last part is whole.  The
// sum of other contributors begins anew.  The coordinate-wise rules begin with
// the samples, which come last, and the others with whole parts.
class RoundSum {
 public:
  // All references outlive this.  loss: zeno's, called on the thread.
  RoundSum(const RoundSumOptions& options, const RoundShape& shape,
           BlockPool& pool, TrustedLoss& loss, SumSink& sink);
  ~RoundSum();

  // Errors: InvalidArgument  the rule or its numbers
  absl::Status CheckRule() const;

  // The bytes of a part, complete or on their way; the first ones stay.  Not
  // null, of the shard's size.
  void AddPart(int64_t step, int shard, const MemberId& member,
               std::shared_ptr<RoundPayload> payload);
  std::shared_ptr<RoundPayload> FindPart(int64_t step, int shard,
                                         const MemberId& member) const;

  // This member serves the shard of that step, and these are counted in it.
  void Expect(int64_t step, int shard, std::vector<MemberId> members);

  // Then OnPartChecked(); the bytes are complete.
  void Check(RoundMessage offer);
  // Then OnDecided() and OnSummed(), or OnSummed() alone.  Parts that were
  // refused make it an error.
  void Close(SumRequest request);

  // Parts and sums of steps before `step` are dropped.
  void Forget(int64_t step);
  // Those of members that are none any more.
  void Retain(const std::set<MemberId>& members);

  // Refuses what comes, ends what runs.  Again: nothing.
  void Stop();

 private:
  using ShardOfStep = std::pair<int64_t, int>;

  // A part, and what is known of it.
  struct Part {
    std::shared_ptr<RoundPayload> payload;
    // The aggregate thread alone uses it.
    std::vector<bool> looked_at;  // [chunks]
    bool finite = true;
  };
  // A sum that goes on while parts come.
  struct Ahead {
    std::vector<MemberId> members;
    std::map<MemberId, std::shared_ptr<Part>> parts;
    std::shared_ptr<RoundPayload> sum;
    std::vector<int> arrived;  // [chunks] of how many parts
  };
  // Guarded by mutex_, all of it; so are the elements' own fields but for
  // what is of the aggregate thread.
  struct Shard {
    std::map<MemberId, std::shared_ptr<Part>> parts;
    std::shared_ptr<Ahead> ahead;  // closures hold it weakly
  };

  bool sums_ahead() const { return TraitsOf(options_.rule.name).sums_ahead; }
  bool reads_whole_parts() const {
    return TraitsOf(options_.rule.name).reads_whole_parts;
  }
  void Join(const std::shared_ptr<Ahead>& ahead, const MemberId& member,
            std::shared_ptr<Part> part);
  void OnChunk(const std::weak_ptr<Ahead>& ahead, int chunk);

  // On the aggregate thread.
  struct Combination {
    std::unique_ptr<Rule> rule;
    RuleVerdict verdict;
    std::vector<std::shared_ptr<Part>> parts;  // by member
    std::vector<int64_t> samples;
    // Whole parts as float32, where the rule reads these and the wire has
    // something else.
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
