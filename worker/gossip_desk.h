// Where a worker takes part in a job that trains by gossip: as RoundDesk, with
// partners in place of servers and no results that all have in common.
//
// A member's compute thread: kPart: updates its own parameters, then Meet();
// kMeet: averages them with the partner's, or does not; the step is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/round/view.h"
#include "worker/block_pool.h"
#include "worker/driver_loop.h"
#include "worker/gossip_driver.h"
#include "worker/gossip_store.h"
#include "worker/group_door.h"
#include "worker/round_transport.h"
#include "worker/round_turn.h"

namespace paceline {

// Thread-safe; the methods of the compute thread are for one thread.  Has a
// thread of its own, "rounds".
class GossipDesk final : public GroupDoor {
 public:
  // clock and observer outlive this.
  GossipDesk(RoundDeskOptions options, const Clock& clock,
             RoundObserver& observer);
  ~GossipDesk() override;

  // GroupDoor.
  absl::Status Start(RoundTransport& transport) override;
  void Stop(
      absl::Status why = absl::CancelledError("the run has ended")) override;
  void Cancel(absl::Status why) override;
  void OnGroup(const GroupOrder& group) override;
  MemberReport Report() const override { return loop_.Report(); }
  RoundStats Stats() const override { return loop_.Stats(); }

  // --- Compute thread ---

  // Waits for something to do; for so long, then it is a kWait.
  // Errors: that of Stop(); Aborted  this member was excluded: only another
  // process of this worker can come back.
  absl::StatusOr<RoundTurn> AwaitTurn(absl::Duration longest) {
    return turns_.Await(longest);
  }
  // Between two micro-batches: the next kCopy, if there is one.
  std::optional<RoundTurn> TryTakeCopy() { return turns_.TryTakeCopy(); }

  // Memory for OwnParameters::payload.
  std::shared_ptr<RoundPayload> MakeBlock();
  // Then comes the kMeet of that step.
  void Meet(OwnParameters own);
  // The answer to kCopy: complete bytes of a state with `next` steps in it.
  void SendState(int64_t next, uint64_t state_hash,
                 std::shared_ptr<RoundPayload> state);

  // --- Any thread ---

  // This member hands the weights over at the end.
  bool uploads() const { return turns_.state().uploads; }
  // As it is now; nothing before the first one that has this member.
  std::optional<View> view() const { return turns_.state().view; }

  // RoundSink.
  absl::StatusOr<std::shared_ptr<RoundPayload>> OnPayload(
      const MemberId& from, const PayloadKey& key, size_t bytes) override;
  void OnMessage(RoundMessage message,
                 std::shared_ptr<RoundPayload> payload) override;
  void OnLink(const MemberId& peer, bool up, bool refused) override;

 private:
  absl::Status CheckPayload(const MemberId& from, const PayloadKey& key,
                            size_t bytes) const;

  // Constant after construction, but for transport_, which Start() sets.
  const RoundDeskOptions options_;
  const Clock& clock_;
  RoundObserver& observer_;
  RoundTransport* transport_ = nullptr;

  BlockPool pool_;
  GossipStore store_;
  RoundTurns turns_;
  DriverLoop<GossipDriver> loop_;
};

}  // namespace paceline
