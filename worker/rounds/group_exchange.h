// A worker's part in a group job: the state machine of core/round behind a
// thread-safe front.  The agent, the compute thread and the transport call the
// front, GroupExchange.  The state machine lives in a driver: GroupDriver is
// what a member's driver has in common in rounds and in gossip.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/job/aggregation.h"
#include "core/job/spec/job_spec.h"
#include "core/obs/log.h"
#include "core/os/thread.h"
#include "core/round/message.h"
#include "core/round/round_member.h"
#include "core/round/view.h"
#include "core/transfer/checksum.h"
#include "worker/pipeline/piece_store.h"
#include "worker/rounds/parts/round_event_log.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/rounds/parts/round_turn.h"
#include "worker/rounds/peer_links.h"

namespace paceline {

// This many results may wait for a slow compute thread, however large they are:
// as many are kept for late members anyway, and the planner counts these.
inline constexpr int64_t kLeastUnapplied = kKeptResults;

// How many steps ahead of this member the parts and results of others may be.
// Bytes of later steps are dropped, and come again when this member is far
// enough.  A joiner that knows that it lags by more is not level.
inline constexpr int64_t kStepsAhead = 4;

struct RoundExchangeOptions {
  int64_t attempt = 0;
  MemberId self;
  AggregationSpec aggregation;  // of the job; not mode none
  size_t values = 0;            // float32 of the gradient
  // The most bytes of results that may wait for the compute thread.  With more,
  // and with more than kLeastUnapplied results, this member holds no further
  // result: the others wait for it.
  size_t unapplied_bytes = size_t{256} << 20;
  int64_t total_steps = 0;  // no part of a later step is asked for
  // Steps that the state has in it.
  int64_t next = 0;
  // Not 0.  A member that is in no view yet fetches the group's state anyway.
  uint64_t state_hash = 1;
  uint64_t seed = 0;  // gossip: of the pairings
  // zeno without gamma: the learning rate of a step.
  std::function<double(int64_t step)> learning_rate = nullptr;
  // For faults on purpose: this member, as server of `step`, has another
  // member's part ("gathering"), knows that another member holds its result
  // ("spreading"), or is about to commit ("committing").  Called on the thread
  // "rounds"; may be null.
  std::function<void(int64_t step, absl::string_view phase)> on_serving =
      nullptr;
  absl::Duration retry_period = absl::Milliseconds(100);
  absl::Duration lease = absl::Seconds(3);

  ServerMode server_mode() const {
    return aggregation.mode == "central" ? ServerMode::kCentral
                                         : ServerMode::kRolling;
  }
};

// Gets events for the coordinator and the metrics.  Called on the thread
// "rounds"; quick.
class RoundObserver {
 public:
  virtual ~RoundObserver() = default;
  virtual void OnRound(const v1::RoundRecord& record) = 0;
  // The report has changed, and should not wait for the next heartbeat.
  virtual void OnMemberChanged() = 0;
};

// All outlive the driver.
struct GroupDriverParts {
  RoundTransport& transport;
  RoundStore& store;
  RoundTurns& turns;
  RoundObserver& observer;
  const Clock& clock;
};

// The part of a member's report that should not wait for a heartbeat.
struct MemberTold {
  ViewId view = {};
  RoundMember::Phase phase = RoundMember::Phase::kListening;  // in rounds
  bool has_taken_part = false;
  bool level = false;

  friend bool operator==(const MemberTold&, const MemberTold&) = default;
};

// Follows the group's views, finds a donor while it listens, offers its state
// to joiners, and ticks the state machine.  Lives on the thread "rounds".
// Member: the state machine, RoundMember or GossipMember.
template <typename Member, typename Actions>
class GroupDriver {
 public:
  virtual ~GroupDriver() = default;

  void OnGroup(const GroupOrder& group) {
    group_ = group;
    parts_.transport.SetPeers(group.workers);
    const auto is_gone = [this](const MemberId& id) {
      return std::ranges::count(group_.workers, id, &GroupWorker::id) == 0;
    };
    std::erase_if(wanted_, is_gone);
    DropFetching(is_gone);
    std::erase_if(heard_,
                  [&](const auto& each) { return is_gone(each.first); });
    const bool counted = Contains(group.view, options_.self);
    if (!member_.has_value()) Begin(counted);
    OnWorkers(is_gone);
    if (counted) {
      AdoptView(group.view);
    } else if (!member_->view().has_value()) {
      FollowDonor();
    } else if (member_->view()->id < group.view.id) {
      parts_.turns.End(Aborted(
          "view ", ViewText(group.view.id),
          " goes on without this member, which was one until view ",
          ViewText(member_->view()->id),
          ": only another process of this worker can become one again"));
    }
    links_.Retain(group.workers);
    Settle();
  }

  void OnLink(const MemberId& peer, bool up, bool refused) {
    const Instant now = parts_.clock.Now();
    links_.OnLink(peer, up, refused, now);
    report_changed_ = true;
    OnPeer(peer, now);
    if (member_.has_value() && !member_->view().has_value()) FollowDonor();
    Settle();
  }

  // The compute thread has answered a kOffer or a kFetch.
  void OnState(RoundTurn turn) {
    if (!member_.has_value()) return;
    if (turn.kind == RoundTurn::Kind::kFetch) return OnFetched(turn);
    offer_ = {turn.step, HashAfter(turn.step), turn.state_hash};
    offered_ = std::move(turn.state);
    for (const MemberId& to : std::exchange(wanted_, {})) {
      SendOffer(to);
      Log(LogLevel::kInfo, "offers a joiner the state",
          {{"worker", to.worker.value}, {"step", turn.step}});
    }
  }

  void OnTick() {
    ticked_ = parts_.clock.Now();
    if (!member_.has_value()) return;
    member_->OnTick(ticked_, actions_);
    Settle();
  }

  // The latest time for the next OnTick().
  Instant DueAt() const {
    const Instant tick = ticked_ + options_.retry_period;
    if (!member_.has_value()) return tick;
    return std::min(member_->DueAt().value_or(tick), tick);
  }

  MemberReport Report(Instant now) const {
    MemberReport report;
    if (!member_.has_value()) return report;
    report.view = told_.view;
    report.next = member_->next();
    report.has_taken_part = told_.has_taken_part;
    report.level = told_.level;
    report.peers = links_.Report(now, options_.lease);
    return report;
  }

  // Whether the report has changed since the last call, and should not wait for
  // the next heartbeat.
  bool TakeChanged() { return std::exchange(changed_, false); }

 protected:
  // options outlives this.
  GroupDriver(const RoundExchangeOptions& options,
              const GroupDriverParts& parts)
      : options_(options), parts_(parts), ticked_(parts.clock.Now()) {}

  // The first group has come: makes member_.  counted: it is in the first view.
  virtual void Begin(bool counted) = 0;
  // OnWorkers: the group has other processes now.  OnNewView: the member is
  // about to adopt `view`.  OnPeer: the link to `peer` broke, or works again.
  virtual void OnWorkers(
      const std::function<bool(const MemberId&)>& /*is_gone*/) {}
  virtual void OnNewView(const View& /*view*/, Instant /*now*/) {}
  virtual void OnPeer(const MemberId& /*peer*/, Instant /*now*/) {}
  // Passes an offer, whose state has come, to the state machine.
  virtual void Give(const RoundMessage& offer) = 0;
  // Carries out the actions of the state machine.
  virtual void Settle() = 0;
  // RoundResult::hash() of the last of these steps; 0: not known.
  virtual uint64_t HashAfter(int64_t /*steps*/) const { return 0; }
  virtual RoundStats& stats() = 0;

  void Refuse(const RoundMessage& message, absl::string_view why) {
    ++stats().refused_messages;
    Log(LogLevel::kWarn, "a message was refused",
        {{"worker", message.from.worker.value},
         {"message", MessageText(message)},
         {"why", why}});
  }

  // Has the compute thread fetch the state that `message` offers, unless it
  // fetches one already or has as many steps.
  void FetchState(const RoundMessage& message) {
    const auto& offer = std::get<StateOffer>(message.body);
    const RoundTurns::State known = parts_.turns.state();
    if (fetches_ || (known.has_state && offer.next <= known.next)) return;
    const auto worker =
        std::ranges::find(group_.workers, message.from, &GroupWorker::id);
    if (worker == group_.workers.end()) return;
    fetches_ = true;
    RoundTurn turn;
    turn.kind = RoundTurn::Kind::kFetch;
    turn.step = offer.next;
    turn.offer = message;
    turn.source = {{}, worker->id, worker->address};
    parts_.turns.Push(std::move(turn));
  }

  // Hands the state that has come to the compute thread.
  void PushRestore(const TakeState& action) {
    RoundTurn turn;
    turn.kind = RoundTurn::Kind::kRestore;
    turn.step = action.next;
    turn.state = std::exchange(state_, {});
    turn.state_hash = action.state_hash;
    parts_.turns.Push(std::move(turn));
  }

  // A joiner gets the same offer again until it has that state, and while no
  // newer state exists, since it would fetch a new one from its first
  // byte.  Else the compute thread makes a new one.
  void Do(const OfferState& action) {
    if (!offered_.empty() &&
        (offer_.next == member_->next() || fetching_.count(action.to) > 0)) {
      return SendOffer(action.to);
    }
    const bool asked = !wanted_.empty();
    wanted_.insert(action.to);
    if (asked) return;
    RoundTurn turn;
    turn.kind = RoundTurn::Kind::kOffer;
    parts_.turns.Push(std::move(turn));
  }

  // These joiners fetch nothing any more.  The last one lets go of the state:
  // it is as large as the model and its optimizer.
  void DropFetching(const std::function<bool(const MemberId&)>& is_over) {
    std::erase_if(fetching_, is_over);
    if (fetching_.empty()) offered_.clear();
  }

  // Publishes the state on which turns depend.  Marks the report as changed, if
  // `told`, which gets the view here, is new or report_changed_ is set.
  void Publish(bool has_state, bool uploads, MemberTold told) {
    parts_.turns.Publish({member_->view(), member_->next(), has_state,
                          member_->needs_part(),
                          uploads && group_.uploader == options_.self});
    if (member_->view().has_value()) told.view = member_->view()->id;
    if (told == told_ && !report_changed_) return;
    told_ = told;
    report_changed_ = false;
    changed_ = true;
  }

  const RoundExchangeOptions& options_;
  const GroupDriverParts parts_;

  std::optional<Member> member_;  // from the first group on
  Actions actions_;
  GroupOrder group_;
  std::vector<PiecePtr> state_;        // of an offer that is being taken
  std::map<MemberId, int64_t> heard_;  // committed_through, newest
  StateOffer offer_;                   // of offered_
  std::vector<PiecePtr> offered_;      // empty: nobody fetches it
  PeerLinks links_;
  MemberTold told_;
  bool report_changed_ = false;

 private:
  void SendOffer(const MemberId& to) {
    fetching_.insert(to);
    parts_.transport.Send(to, member_->Message(offer_), {}, nullptr);
  }

  // The state that an offer names has come; none: it could not be fetched, and
  // the member asks again.
  void OnFetched(RoundTurn& turn) {
    fetches_ = false;
    const auto& offer = std::get<StateOffer>(turn.offer.body);
    if (turn.state.empty() || !IsGood(offer, turn.state)) return;
    state_ = std::move(turn.state);
    Give(turn.offer);
    Settle();
    state_.clear();  // left by an offer that is of no use any more
  }

  // Whether `state` is the one that `offer` names.
  bool IsGood(const StateOffer& offer, const std::vector<PiecePtr>& state) {
    Checksum checksum;
    for (const PiecePtr& piece : state) checksum.Update(piece->bytes());
    if (checksum.Digest() == offer.state_hash) return true;
    ++stats().refused_results;
    Log(LogLevel::kWarn, "a state was refused: another hash",
        {{"step", offer.next}});
    return false;
  }

  void AdoptView(const View& view) {
    if (member_->view().has_value() && view.id <= member_->view()->id) return;
    const Instant now = parts_.clock.Now();
    OnNewView(view, now);
    member_->OnView(view, now, actions_);
    Log(LogLevel::kInfo, "adopted a view",
        {{"view", ViewText(view.id)},
         {"members", view.members.size()},
         {"step", member_->next()}});
  }

  // The donor is the first member whose link is not known to be broken.
  void FollowDonor() {
    if (Contains(group_.view, donor_) && !links_.BrokenSince(donor_)) return;
    for (const ViewMember& member : group_.view.members) {
      if (links_.BrokenSince(member.id)) continue;
      donor_ = member.id;
      return member_->Join(donor_, parts_.clock.Now(), actions_);
    }
  }

  MemberId donor_;
  bool fetches_ = false;         // the compute thread has a kFetch
  std::set<MemberId> wanted_;    // wait for an offer
  std::set<MemberId> fetching_;  // have it
  Instant ticked_;
  bool changed_ = false;
};

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
    Post([message = std::move(message), payload = std::move(payload)](
             Driver& driver) { driver.OnMessage(message, payload); },
         kMostTasks);
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

  // Every driver borrows these; StartThread() has set the transport.
  GroupDriverParts parts() {
    return {*transport_, store_, turns_, observer_, clock_};
  }

  // make: called on the new thread.
  void StartThread(RoundTransport& transport,
                   std::function<std::unique_ptr<Driver>()> make) {
    transport_ = &transport;
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
  // Drops the task where `most` wait already: peers repeat their messages.
  void Post(Task task, size_t most = std::numeric_limits<size_t>::max()) {
    const SteadyLock lock(&mutex_);
    if (stopping_ || tasks_.size() >= most) return;
    tasks_.push_back({clock_.Now(), std::move(task)});
  }
  // With this many tasks waiting, further messages of peers are dropped.
  static constexpr size_t kMostTasks = 1 << 14;

  // Constant after construction, but for transport_, which StartThread() sets.
  const RoundExchangeOptions options_;
  const RoundShape shape_;
  const Clock& clock_;
  RoundObserver& observer_;
  RoundTransport* transport_ = nullptr;

  BlockPool pool_;
  RoundStore store_;

 private:
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
