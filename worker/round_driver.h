// Drives the state machine of core/round: gives it what comes, does what it
// says, keeps bytes and messages together.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "core/model/aggregation.h"
#include "core/model/job_spec.h"
#include "core/round/round_member.h"
#include "worker/group_door.h"
#include "worker/peer_links.h"
#include "worker/round_chronicle.h"
#include "worker/round_shape.h"
#include "worker/round_store.h"
#include "worker/round_sum.h"
#include "worker/round_transport.h"
#include "worker/round_turn.h"
#include "worker/state_copies.h"

namespace paceline {

// Results that may wait for a slow compute thread, however large they are: as
// many are kept for late members anyway, and the planner counts these.
inline constexpr int64_t kLeastUnapplied = kKeptResults;

// How far ahead of this member others may be with their parts and results: it
// may lack some of steps that it does not take part in.  Bytes of later steps
// are dropped, and come again when it is far enough.  A joiner that knows that
// it lags by more is not level.
inline constexpr int64_t kStepsAhead = 4;

struct RoundDeskOptions {
  int64_t attempt = 0;
  MemberId self;
  AggregationSpec aggregation;  // of the job; not mode none
  size_t values = 0;            // float32 of the gradient
  size_t state_bytes = 0;       // of the engine's state
  // Of results that the compute thread has still to apply.  Beyond them, and
  // beyond kLeastUnapplied, this member holds no more: the others wait for it,
  // or go on without it once it owes them an answer for a lease.
  size_t unapplied_bytes = size_t{256} << 20;
  int64_t total_steps = 0;  // no part of later ones is asked for
  // What the state has in it.
  int64_t next = 0;
  // Not 0.  A member that is in no view yet fetches the group's all the same.
  uint64_t state_hash = 1;
  uint64_t seed = 0;  // gossip: of the pairings
  // zeno without gamma: the learning rate of a step.
  std::function<double(int64_t step)> learning_rate = nullptr;
  // For faults on purpose: this member, as server of `step`, has another's part
  // ("gathering"), knows that another holds its result ("spreading"), or is
  // about to commit ("committing").  On the desk's thread; may be null.
  std::function<void(int64_t step, absl::string_view phase)> on_serving =
      nullptr;
  absl::Duration retry_period = absl::Milliseconds(100);
  absl::Duration lease = absl::Seconds(3);
};

// All outlive the driver.
struct RoundDriverParts {
  RoundTransport& transport;
  RoundStore& store;
  RoundSum& sum;
  RoundTurns& turns;
  RoundObserver& observer;
  const Clock& clock;
};

// A member's own part, as the driver keeps it.
struct OwnPart {
  std::vector<PartOffer> offers;  // one a shard
  std::vector<std::shared_ptr<RoundPayload>> payloads;
  bool unusable = false;  // a fault on purpose: refused where served here
  bool duplicates = false;
};

// Lives on the thread "rounds".
class RoundDriver {
 public:
  RoundDriver(const RoundDeskOptions& options, const RoundShape& shape,
              const RoundDriverParts& parts);

  void OnGroup(const GroupOrder& group);
  void OnMessage(RoundMessage message, std::shared_ptr<RoundPayload> payload);
  void OnPartChecked(const RoundMessage& offer, PartCheck check);
  void OnPart(OwnPart part);
  void OnSummed(const SumRequest& request, std::shared_ptr<RoundPayload> sum,
                const SumVerdict& verdict);
  // Bytes have come that a message may wait for.
  void OnBytes();
  void OnLink(const MemberId& peer, bool up, bool refused);
  void OnApplied(int64_t next, uint64_t state_hash);
  void OnStateCopied(int64_t next, uint64_t state_hash,
                     std::shared_ptr<RoundPayload> state);
  void OnTick();

  // When OnTick() is due, at the latest.
  Instant DueAt() const;
  MemberReport Report(Instant now) const;
  RoundStats Stats() const;
  // Whether the report says something since the last call that should not wait
  // for the next heartbeat.
  bool TakeChanged() { return std::exchange(changed_, false); }

  // What a sum of this member is sent under.
  static uint64_t VariantOf(ViewId view);

 private:
  void AdoptView(const View& view);
  void FollowDonor(const View& view);
  // What is kept of and for processes that the group has no more.
  void ForgetOthersThan(const std::vector<GroupWorker>& workers);

  // Whether a message may go to the state machine now, with its bytes.
  enum class Ready : uint8_t { kYes, kWaits, kRefused };
  Ready CheckBytes(const RoundMessage& message,
                   const std::shared_ptr<RoundPayload>& payload);
  Ready CheckResult(const RoundMessage& message, const RoundResult& result,
                    const std::shared_ptr<RoundPayload>& payload);
  Ready CheckCopy(const Copy& copy,
                  const std::shared_ptr<RoundPayload>& payload);
  void TakeOffer(const RoundMessage& message);
  void Park(RoundMessage message);
  void SayServing(const RoundMessage& message);
  void Refuse(const RoundMessage& message, absl::string_view why);
  bool IsEarly(const RoundMessage& message) const;
  // It brings a result, and too many wait for the compute thread.
  bool IsTooMuch(const Body& body) const;
  void GiveEarly();
  // To the state machine.
  void Give(const RoundMessage& message);

  // What the state machine wants done.
  void Settle();
  void SayCommits(const RoundActions& actions) const;
  void Do(const SendMessage& action);
  void Do(const SumRequest& action);
  void Do(const Apply& action);
  void Do(const Suspect& action);
  void Do(const ReportMismatch& action);
  void Do(const TakeCopy& action);
  void Do(const SendCopy& action);
  void SendResult(const SendMessage& action, const RoundResult& result);
  void AskForNext(const MemberId& from);
  void ExpectParts();
  void Publish();
  bool IsLevel() const;

  RoundMessage Message(Body body) const;
  uint64_t HashAfter(int64_t steps) const;

  const RoundDeskOptions& options_;
  const RoundShape shape_;
  const RoundDriverParts parts_;
  const ServerMode mode_;

  // From the first group on: whether it is a member from the beginning.
  std::optional<RoundMember> member_;
  RoundActions actions_;
  RoundChronicle chronicle_;
  GroupOrder group_;
  MemberId donor_;
  bool joined_ = false;     // was in a view
  bool has_state_ = false;  // the compute thread has, up to applied_
  int64_t group_next_ = 0;  // of a listener: the most steps it has heard of
  int copies_taken_ = 0;
  int64_t applied_ = 0;                  // by the compute thread
  OwnPart part_;                         // of the open step
  std::shared_ptr<RoundPayload> state_;  // of a Copy that is being taken
  std::deque<RoundMessage> parked_;      // wait for bytes
  // Wait for a view, or for its being level.
  std::deque<std::pair<RoundMessage, std::shared_ptr<RoundPayload>>> early_;
  // When they were looked at last.
  std::pair<ViewId, RoundMember::Phase> settled_ = {
      {}, RoundMember::Phase::kListening};
  // RoundResult::hash() by the steps that there are then.
  std::map<int64_t, uint64_t> hashes_;
  std::map<MemberId, int64_t> heard_;  // committed_through, newest
  StateCopies copies_;
  PeerLinks links_;
  std::optional<ReportMismatch> mismatch_found_;
  Instant ticked_;
  // What TakeChanged() was last true for.
  struct Told {
    ViewId view;
    RoundMember::Phase phase = RoundMember::Phase::kListening;
    bool has_taken_part = false;
    bool level = false;

    friend bool operator==(const Told&, const Told&) = default;
  };
  Told told_;
  // What was asked of the sum last: (view, step).
  std::pair<ViewId, int64_t> expected_;
  bool report_changed_ = false;
  bool changed_ = false;
};

}  // namespace paceline
