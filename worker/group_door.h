// What the agent asks of a run in a group, whatever the mode of its job.
#pragma once

#include "absl/status/status.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "worker/round_chronicle.h"
#include "worker/round_transport.h"

namespace paceline {

// Thread-safe.
class GroupDoor : public RoundSink {
 public:
  // Before everything else.  transport: made with this as its sink; outlives
  // Stop().
  // Errors: InvalidArgument  what the job says of aggregation
  virtual absl::Status Start(RoundTransport& transport) = 0;
  // Ends all threads and every wait with `why`; again: nothing.
  virtual void Stop(
      absl::Status why = absl::CancelledError("the run has ended")) = 0;
  // Ends the waits alone; from any thread, at once.
  virtual void Cancel(absl::Status why) = 0;

  // The standing order's group, whole.
  virtual void OnGroup(const GroupOrder& group) = 0;

  virtual MemberReport Report() const = 0;
  virtual RoundStats Stats() const = 0;
};

// Hears what the coordinator and the metrics shall know; called on the desk's
// thread, quick.
class RoundObserver {
 public:
  virtual ~RoundObserver() = default;
  virtual void OnRound(const RoundRecord& record) = 0;
  // The report says something that should not wait for the next heartbeat.
  virtual void OnMemberChanged() = 0;
};

// View `view` goes on without a member of view `last`.
absl::Status ExcludedError(ViewId view, ViewId last);

}  // namespace paceline
