// A worker's part in a group job: the state machine of core/round behind a
// thread-safe front.  The agent, the compute thread and the transport call it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/os/thread.h"
#include "core/round/view.h"
#include "worker/pipeline/piece_store.h"
#include "worker/rounds/group_driver.h"
#include "worker/rounds/parts/round_event_log.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_store.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/rounds/parts/round_turn.h"

namespace paceline {

// The agent and a runner use an exchange of any mode through this interface.
// Thread-safe; the methods of the compute thread are for one thread.
class GroupExchange : public RoundSink {
 public:
  explicit GroupExchange(int64_t total_steps) : turns_(total_steps) {}

  // Call it first.  transport: made with this as its sink; it outlives Stop().
  // Errors: InvalidArgument  the job's aggregation rule or its numbers
  virtual absl::Status Start(RoundTransport& transport) = 0;
  // Ends all threads, and every wait with `why`.  Safe to repeat.
  virtual void Stop(absl::Status why = Cancelled("the run has ended")) = 0;
  // Ends only the waits, at once.
  virtual void Cancel(absl::Status why) { turns_.End(std::move(why)); }

  // Takes the whole group of the standing order.
  virtual void OnGroup(const GroupOrder& group) = 0;

  virtual MemberReport Report() const = 0;
  virtual RoundStats Stats() const = 0;

  // --- Compute thread ---

  // Waits for something to do.  After `longest` the turn is kWait.
  // Errors: that of Stop(); Aborted  this member was excluded: only another
  // process of this worker can come back.
  virtual absl::StatusOr<RoundTurn> AwaitTurn(
      absl::Duration longest = absl::InfiniteDuration()) {
    return turns_.Await(longest);
  }
  // Takes the next kOffer, if there is one.  An offer need not wait for the
  // turns before it.
  std::optional<RoundTurn> TryTakeOffer() { return turns_.TryTakeOffer(); }
  // The answer to kOffer and kFetch: the turn with the state.
  //   kOffer  and its step and hash.  Others can fetch it as long as this
  //           object keeps it
  //   kFetch  none: it could not be fetched
  virtual void AnswerState(RoundTurn turn) = 0;

  // --- Any thread ---

  // Whether this member hands the weights over at the end.
  bool uploads() const { return turns_.state().uploads; }
  // The present view; nothing before the first one that has this member.
  std::optional<View> view() const { return turns_.state().view; }

 protected:
  RoundTurns turns_;
};

// Passes events on to the Driver (of rounds or of gossip), which lives on a
// thread of its own, "rounds".  The thread runs posted tasks, and ticks the
// driver when it is due.  After each run it publishes the driver's report, and
// then tells the observer of a change in it.  Driver: DueAt(), OnTick(),
// Report(now), Stats(), TakeChanged().
template <typename Driver>
class DriverExchange : public GroupExchange {
 public:
  void OnGroup(const GroupOrder& group) override {
    Post([group](Driver& driver) { driver.OnGroup(group); });
  }
  MemberReport Report() const override {
    const SteadyLock lock(&mutex_);
    MemberReport report = report_;
    report.idle = std::max(clock_.Now() - handled_, absl::ZeroDuration());
    report.slowest = answers_.Get();
    return report;
  }
  RoundStats Stats() const override {
    const SteadyLock lock(&mutex_);
    return stats_;
  }
  void AnswerState(RoundTurn turn) override {
    Post([turn = std::move(turn)](Driver& driver) { driver.OnState(turn); });
  }

  // RoundSink.
  void OnMessage(RoundMessage message,
                 std::shared_ptr<RoundPayload> payload) override {
    PostOfPeer([message = std::move(message), payload = std::move(payload)](
                   Driver& driver) { driver.OnMessage(message, payload); });
  }
  void OnLink(const MemberId& peer, bool up, bool refused) override {
    Post([=](Driver& driver) { driver.OnLink(peer, up, refused); });
  }

 protected:
  using Task = std::function<void(Driver&)>;

  // clock and observer outlive this.
  DriverExchange(RoundExchangeOptions options, const RoundShape& shape,
                 const StoreLimits& limits, const Clock& clock,
                 RoundObserver& observer)
      : GroupExchange(options.total_steps),
        options_(std::move(options)),
        shape_(shape),
        clock_(clock),
        observer_(observer),
        // Keeps unused blocks for three steps' bytes.
        pool_(3 * shape.values() * shape.value_bytes() + kRoundChunkBytes),
        store_(shape, pool_, limits) {}

  // Every driver borrows these; Start() has set the transport.
  GroupDriverParts parts() {
    return {*transport_, store_, turns_, observer_, clock_};
  }

  // make: called on the new thread.
  void StartThread(std::function<std::unique_ptr<Driver>()> make) {
    {
      const SteadyLock lock(&mutex_);
      handled_ = clock_.Now();
    }
    thread_ =
        Thread("rounds", [this, make = std::move(make)] { Run(*make()); });
  }
  // Takes no more tasks; the thread ends.
  void EndThread() {
    const SteadyLock lock(&mutex_);
    stopping_ = true;
  }
  // Waits for the thread to end, and drops the tasks that are left.
  void JoinThread() {
    thread_.Join();
    std::deque<Posted> dropped;  // without the lock: some hold a part's memory
    const SteadyLock lock(&mutex_);
    dropped.swap(tasks_);
  }
  void Post(Task task) {
    const SteadyLock lock(&mutex_);
    if (!stopping_) tasks_.push_back({clock_.Now(), std::move(task)});
  }
  // Posts a peer's message; drops it where too many wait, since peers repeat
  // it.
  void PostOfPeer(Task task) {
    const SteadyLock lock(&mutex_);
    if (stopping_ || tasks_.size() >= kMostTasks) return;
    tasks_.push_back({clock_.Now(), std::move(task)});
  }

  // Constant after construction, but for transport_, which Start() sets.
  const RoundExchangeOptions options_;
  const RoundShape shape_;
  const Clock& clock_;
  RoundObserver& observer_;
  RoundTransport* transport_ = nullptr;

  BlockPool pool_;
  RoundStore store_;

 private:
  // With this many tasks waiting, further messages of peers are dropped.
  static constexpr size_t kMostTasks = 1 << 14;

  struct Posted {
    Instant when;
    Task task;
  };

  void Await(Instant due, std::deque<Posted>& tasks) {
    const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !tasks_.empty();
    };
    const SteadyLock lock(&mutex_);
    mutex_.AwaitFor(absl::Condition(&something), due - clock_.Now());
    tasks.swap(tasks_);
  }

  void Run(Driver& driver) {
    for (;;) {
      std::deque<Posted> tasks;
      Await(driver.DueAt(), tasks);
      for (const Posted& each : tasks) {
        each.task(driver);
        OnHandled(each.when);
      }
      const Instant now = clock_.Now();
      if (now >= driver.DueAt()) driver.OnTick();
      if (Keep(driver.Report(now), driver.Stats())) return;
      // Only after Keep(): the observer asks for the report at once.
      if (driver.TakeChanged()) observer_.OnMemberChanged();
    }
  }

  void OnHandled(Instant posted) {
    const SteadyLock lock(&mutex_);
    handled_ = clock_.Now();
    answers_.Add(handled_ - posted);
  }

  // Publishes the report.  True: the thread shall end.
  bool Keep(MemberReport report, const RoundStats& stats) {
    const SteadyLock lock(&mutex_);
    handled_ = clock_.Now();
    report_ = std::move(report);
    stats_ = stats;
    return stopping_;
  }

  mutable SteadyMutex mutex_;
  std::deque<Posted> tasks_ ABSL_GUARDED_BY(mutex_);
  // When the thread last finished a task or a tick.
  Instant handled_ ABSL_GUARDED_BY(mutex_);
  RecentLongest answers_ ABSL_GUARDED_BY(mutex_);  // post to end of a task
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  MemberReport report_ ABSL_GUARDED_BY(mutex_);
  RoundStats stats_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace paceline
