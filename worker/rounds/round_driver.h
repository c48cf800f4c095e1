// RoundDriver runs the state machine of core/round: passes messages in, carries
// out actions, and keeps bytes and messages together.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/cluster/eviction.h"
#include "core/round/round_member.h"
#include "worker/rounds/group_exchange.h"
#include "worker/rounds/parts/round_event_log.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_sum.h"

namespace paceline {

// A member's own part, as the driver keeps it.
struct OwnPart {
  std::vector<PartOffer> offers;  // one a shard
  std::vector<std::shared_ptr<RoundPayload>> payloads;
  bool unusable = false;  // a fault on purpose: refused if served here
  bool duplicates = false;
};

// Lives on the thread "rounds".
class RoundDriver final : public GroupDriver<RoundMember, RoundActions> {
 public:
  // options and sum outlive this.
  RoundDriver(const RoundExchangeOptions& options, const RoundShape& shape,
              const GroupDriverParts& parts, RoundSum& sum);

  void OnMessage(RoundMessage message, std::shared_ptr<RoundPayload> payload);
  void OnPartChecked(const RoundMessage& offer, PartCheck check);
  void OnPart(OwnPart part);
  void OnSummed(const SumRequest& request, std::shared_ptr<RoundPayload> sum,
                const SumVerdict& verdict);
  // Bytes have come that a message may wait for.
  void OnBytes();
  void OnApplied(int64_t next, uint64_t state_hash);

  MemberReport Report(Instant now) const;
  RoundStats Stats() const;

  // The variant of the results that this member sums in `view`.
  static uint64_t VariantOf(ViewId view);

 private:
  // GroupDriver.
  void Begin(bool counted) override;
  void OnNewView(const View& view, Instant now) override;
  void Give(const RoundMessage& message) override;
  void Settle() override;
  uint64_t HashAfter(int64_t steps) const override;
  RoundStats& stats() override { return events_.stats(); }

  // Whether a message may go to the state machine now, with its bytes.
  enum class Ready : uint8_t { kYes, kWaits, kRefused };
  Ready CheckBytes(const RoundMessage& message,
                   const std::shared_ptr<RoundPayload>& payload);
  Ready CheckResult(const RoundMessage& message, const RoundResult& result,
                    const std::shared_ptr<RoundPayload>& payload);
  void TakeOffer(const RoundMessage& message);
  void Park(RoundMessage message);
  void SayServing(const RoundMessage& message);
  bool IsEarly(const RoundMessage& message) const;
  // Whether it brings a result while too many wait for the compute thread.
  bool IsTooMuch(const Body& body) const;
  void GiveEarly();

  // Carry out the actions of the state machine.
  using GroupDriver::Do;
  void SayCommits(const RoundActions& actions) const;
  void Do(const SendMessage& action);
  void Do(const SumRequest& action) { sum_.Close(action); }
  void Do(const Apply& action);
  void Do(const Suspect& action);
  void Do(const ReportMismatch& action);
  void Do(const TakeState& action);
  void SendResult(const SendMessage& action, const RoundResult& result);
  void AskForNext(const MemberId& from);
  void ExpectParts();
  void Publish();
  bool IsLevel() const;

  const RoundShape shape_;
  RoundSum& sum_;
  const ServerMode mode_;

  RoundEventLog events_;
  bool has_state_ = false;  // the compute thread has the state
  int64_t group_next_ = 0;  // of a listener: the most steps it has heard of
  int states_taken_ = 0;
  OwnPart part_;                     // of the open step
  std::deque<RoundMessage> parked_;  // wait for bytes
  // Messages that wait for a view to come, or to be level.
  std::deque<std::pair<RoundMessage, std::shared_ptr<RoundPayload>>> early_;
  // The view and phase in which early_ was examined last.
  std::pair<ViewId, RoundMember::Phase> settled_ = {
      {}, RoundMember::Phase::kListening};
  // RoundResult::hash() of the last step, by the number of applied steps.
  std::map<int64_t, uint64_t> hashes_;
  std::optional<ReportMismatch> mismatch_found_;
  // (view, step) for which the sum was asked last.
  std::pair<ViewId, int64_t> expected_;
};

}  // namespace paceline
