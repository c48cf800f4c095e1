// The simulation does the work of the coordinator's adapters: the group, its
// views, the store, checkpoints, exports, stop and resume.
#include "tests/core/joint/world.h"

#include <algorithm>

#include "core/base/random.h"
#include "tests/core/joint/world_state.h"

namespace paceline::joint_world {
namespace {

using recover_world::Fault;
using recover_world::kFaults;
using recover_world::kMs;

// By WorkPhase.
constexpr v1::RunState::Phase kPhases[] = {
    v1::RunState::PHASE_UNSPECIFIED, v1::RunState::PHASE_PREPARING,
    v1::RunState::PHASE_RUNNING,     v1::RunState::PHASE_STOPPED,
    v1::RunState::PHASE_DONE,        v1::RunState::PHASE_FAILED};

recover_world::WorldOptions BaseOptions(const WorldOptions& options) {
  recover_world::WorldOptions base;
  base.seed = options.seed;
  base.trace = options.trace;
  return base;
}

}  // namespace

// --- Its shape, and its life -------------------------------------------------

World::World(const WorldOptions& options, world::Coverage* coverage)
    : Base(BaseOptions(options), coverage), joint_(options) {
  layers_ = 2;
  last_step_ = Between(10, 30);
  replicas_.clear();
  records_ = settles_ = may_roll_back_ = false;
  two_stages_ = 0;
  needed_workers_ = Between(1, 2);
  while (workers_.size() > 5) workers_.pop_back();
  while (workers_.size() < 3) {
    Worker& worker = workers_.emplace_back();
    worker.index = std::ssize(workers_) - 1;
    worker.machine = {worker.index};
  }
  for (Worker& worker : workers_) {
    worker.lacks_file = false;
    worker.settled = true;
  }
  members_.resize(workers_.size());
  gossip_ = OneIn(3);
  checkpoint_every_ = OneIn(3) ? 0 : Between(2, 6);
  most_members_ = OneIn(2) ? std::ssize(workers_) : Between(2, 3);
  round_.mode = OneIn(5) ? ServerMode::kCentral : ServerMode::kRolling;
  round_.min_parts = 1;
  round_.deadline.floor = absl::Milliseconds(4);
  round_.deadline.ceiling = absl::Milliseconds(30);
  round_.retry_period = absl::Milliseconds(15);
  round_.lease = absl::Microseconds(recover_world::kLeaseUs);
}

WorldResult World::Run() {
  Play();
  sums_.violation = violation();
  sums_.events = events();
  sums_.faults = faults();
  sums_.attempts = result_.attempts;
  sums_.jobs = job_number_;
  sums_.done = finished_;
  sums_.paused = !finished_;
  return sums_;
}

RecoveryPolicy World::Policy() const {
  RecoveryPolicy policy = Base::Policy();
  policy.views = true;
  policy.states_differ = gossip_ && joint_.flaw != JointFlaw::kMixDepositors;
  return policy;
}

absl::StatusOr<std::vector<RunPlace>> World::Plan(
    const std::vector<RunCandidate>& candidates) const {
  std::vector<RunPlace> places;
  for (const RunCandidate& each : candidates) {
    if (!each.unfit.empty() || std::ssize(places) >= most_members_) continue;
    places.push_back({{0, layers_}, each.process});
  }
  if (std::ssize(places) >= needed_workers_) return places;
  return absl::UnavailableError(
      absl::StrCat(places.size(), " workers are fit"));
}

GroupOptions World::OptionsOfGroup() const {
  GroupOptions options;
  options.term = static_cast<int64_t>(coordinator_.incarnation());
  options.lease = round_.lease;
  options.instruction_bound = absl::Milliseconds(400);
  return options;
}

// --- The store ---------------------------------------------------------------

void World::Write(std::function<void()> change) {
  ++issued_;
  writes_.push_back(std::move(change));
  if (writes_.size() == 1) WriteNext();
}

void World::WriteNext() {
  // A crash before it is on the disk loses it, and with it what waits for it.
  AfterOn(coordinator_, store_.WriteTime(*this), [this] {
    if (writes_.empty()) return;
    if (store_.fails(*this)) return WriteNext();
    writes_.front()();
    writes_.pop_front();
    ++written_;
    if (!writes_.empty()) WriteNext();
    AfterOn(coordinator_, Between(0, 2 * kMs), [this] { Flush(); });
  });
}

// The row, its places and its first view in one transaction.
void World::Store(const StoreAttempt& store) {
  std::vector<GroupWorker> workers;
  for (const RunPlace& place : store.places) {
    workers.push_back({place.process, NameOf(place.process.worker.value), ""});
  }
  group_.emplace(OptionsOfGroup(), std::nullopt);
  group_->Begin(workers, {}, store.row.base.step, Now());
  kept_ = {store.row.attempt, *group_->TakeNews().view, {}, kept_.distrusted};
  deposit_from_ = reached_ = 0;
  heard_.clear();
  sent_.clear();
  const auto keep_row = [this, store] {
    std::erase_if(rows_, [&](const AttemptRow& row) {
      return row.attempt >= store.row.attempt;
    });
    rows_.push_back(store.row);
    places_ = store.places;
    if (!IsValid(told_floor_)) told_floor_ = Cut();
    ++result_.attempts;
  };
  const auto keep_view = [this, kept = kept_] { disk_ = kept; };
  if (joint_.flaw == JointFlaw::kViewOutsideAttempt) {
    Write(keep_row);
    Write(keep_view);
  } else {
    Write([keep_row, keep_view] {
      keep_row();
      keep_view();
    });
  }
  Call(&JobRecovery::OnStored, store.row.attempt);
}

void World::SendDown(const MemberId& to, const JobOrder& order) {
  // An attempt that is stored at once has given a newer one meanwhile.
  const JobOrder* const newest = job_->OrderOf(to);
  if (newest != nullptr && newest->number > order.number) return;
  Outgoing outgoing{issued_, to, order, std::nullopt};
  if (order.run.has_value()) outgoing.group = GroupOrderOf(to);
  if (!outgoing.group.has_value()) outgoing.order.run.reset();
  sent_[to] = outgoing.group;
  outbox_.push_back(std::move(outgoing));
  Flush();
}

void World::SendNoRun(const MemberId& to) {
  JobOrder order;
  order.number = counter_.Next();
  SendDown(to, order);
}

void World::Flush() {
  while (!outbox_.empty() && outbox_.front().after <= written_) {
    const Outgoing next = std::move(outbox_.front());
    outbox_.pop_front();
    Deliver(next);
  }
}

void World::Deliver(const Outgoing& outgoing) {
  Worker& worker = Of(outgoing.to);
  const Link& link = links_[worker.index];
  if (worker.id() != outgoing.to || worker.cut || link.lost) return;
  Base::CheckOrder(outgoing.to, outgoing.order);
  if (outgoing.group.has_value() &&
      (disk_.attempt != outgoing.order.run->attempt ||
       disk_.view.id < outgoing.group->view.id)) {
    Fail("view ", ViewText(outgoing.group->view.id),
         " is sent before it is durable");
  }
  AfterOn(worker, worker.down.NextDelay(*this),
          [this, &worker, outgoing, stream = link.stream, job = job_number_] {
            if (worker.stream != stream || worker.cut) return;
            OnGroupOrder(worker, outgoing.order, outgoing.group, job);
          });
}

std::optional<GroupOrder> World::GroupOrderOf(const MemberId& id) const {
  if (!group_.has_value()) return std::nullopt;
  std::optional<GroupOrder> order = group_->OrderOf(id);
  if (!order.has_value()) return order;
  order->deposit_from = deposit_from_;
  if (job_->NeedsFollowers()) order->deposit_every = snapshots_.every;
  return order;
}

// The group changes also where the recovery's own order stays.
void World::SendGroupOrders() {
  for (const auto& [index, id] : attached_) {
    if (links_[index].lost) continue;
    const JobOrder* const order = job_->OrderOf(id);
    if (order == nullptr || !order->run.has_value()) continue;
    const auto sent = sent_.find(id);
    if (sent != sent_.end() && sent->second == GroupOrderOf(id)) continue;
    SendDown(id, JobOrder(*order));
  }
}

// --- Its start ---------------------------------------------------------------

void World::BeginJob() {
  group_.reset();
  if (checkpoint_ != Cut()) job_->OnCheckpoints({checkpoint_});
  Base::BeginJob();
}

void World::RestoreJob() {
  attached_.clear();
  sent_.clear();
  renewals_.clear();
  heard_.clear();
  reached_ = 0;
  Base::RestoreJob();
  kept_ = disk_;
  for (const auto& [worker, incarnation] : kept_.distrusted) {
    job_->Distrust({worker, incarnation});
  }
  if (disk_.attempt != rows_.back().attempt) {
    return Fail("attempt ", rows_.back().attempt,
                " is stored without its first view");
  }
  group_.emplace(OptionsOfGroup(), disk_.view, disk_.excluded);
  for (const ViewMember& each : disk_.view.members) {
    group_->Admit({each.id, NameOf(each.id.worker.value), ""}, 1, Now());
  }
  group_->TakeNews();
  Call(&JobRecovery::OnRoster, group_->MakeRoster(layers_));
}

void World::CrashCoordinator(bool roll_back) {
  group_.reset();
  writes_.clear();
  outbox_.clear();
  issued_ = written_ = 0;
  fetching_ = exports_ = stops_ = false;
  deposit_from_ = failed_at_ = 0;
  Base::CrashCoordinator(roll_back);
}

// --- The group ---------------------------------------------------------------

void World::SeeAttached(Worker& worker) {
  attached_[worker.index] = said_->id;
  // An order without the job ends what it runs of an earlier one.
  if (said_->job != job_number_ && job_->OrderOf(said_->id) == nullptr) {
    SendNoRun(said_->id);
  }
  if (!group_.has_value()) return;
  CheckProcess(worker.index);
  TakeNews();
}

void World::SeeReport(Worker& /*worker*/, JobReport& report) {
  if (said_->job != job_number_ || report.attempt != job_->attempt()) return;
  const MemberId id = said_->id;
  reached_ = std::max(reached_, report.step);
  if (!report.joins) heard_.insert(id);
  if (joint_.flaw == JointFlaw::kJoinerAdopts) report.joins = false;
  if (joint_.flaw == JointFlaw::kFloorIsBase) report.step = job_->base().step;
  if (!group_.has_value()) return;
  if (report.phase == WorkPhase::kFailed && group_->Has(id)) {
    group_->OnGone(id, GroupExit::kFailed, std::string(report.error.message()));
  } else if (report.attempt > 0) {
    group_->OnReport(id, kPhases[static_cast<int>(report.phase)], said_->member,
                     said_->progress, Now());
  }
  group_->OnTick(Now());
  TakeNews();
}

// A process that is gone, or was replaced, or is new.
void World::CheckProcess(int64_t index) {
  const Link& link = links_[index];
  const MemberId* const present = group_->FindProcess({index + 1});
  if (link.lost || link.stream == 0) {
    if (present == nullptr || !link.lost) return;
    const MemberId gone = *present;
    return group_->OnGone(gone, GroupExit::kLost, "it is silent");
  }
  const MemberId id = attached_.at(index);
  if (present != nullptr && *present != id) {
    if (!group_->begun() && ++false_starts_ <= 3) {
      return group_->End("a worker started anew before the run");
    }
    const MemberId gone = *present;
    group_->OnGone(gone, GroupExit::kRestarted, "it runs as another process");
  }
  if (draining_.count(index) > 0 || group_->IsExcluded(id)) return;
  if (!group_->Has(id) &&
      group_->members() + group_->listeners() >= most_members_) {
    return;
  }
  group_->Admit({id, NameOf(index), ""}, 1, Now());
  group_->OnHeard(id, Instant{absl::Microseconds(link.last_heard_us)});
}

// A process that was taken out executes itself anew after a while.
void World::RenewExcluded() {
  for (const auto& [index, id] : attached_) {
    if (links_[index].lost || !group_->IsExcluded(id)) continue;
    const auto [due, is_new] =
        renewals_.emplace(id, now_us() + Between(0, 400) * kMs);
    if (now_us() < due->second) continue;
    due->second = INT64_MAX;
    if (workers_[index].id() == id) AskToEnd(workers_[index]);
  }
}

void World::TakeNews() {
  if (!group_.has_value()) return;
  const GroupNews news = group_->TakeNews();
  if (news.view.has_value() || !news.leavers.empty()) {
    if (news.view.has_value()) kept_.view = *news.view;
    for (const GroupLeaver& each : news.leavers) {
      kept_.excluded[each.id.worker] = each.id.incarnation;
      if (each.exit != GroupExit::kMismatch) continue;
      kept_.distrusted[each.id.worker] = each.id.incarnation;
    }
    Write([this, kept = kept_] { disk_ = kept; });
  }
  sums_.views += news.views;
  if (news.views > 0) See(Moment::kView);
  for (const GroupLeaver& leaver : news.leavers) TakeLeaver(leaver);
  for (const GroupEvent& event : news.events) {
    Trace("group ", event.kind, ": ", event.text);
    if (event.kind == "joined") See(Moment::kJoin);
  }
  int64_t tainted = 0;
  for (const ViewMember& each : group_->view()->members) {
    const Worker* const worker = Find(each.id);
    if (worker != nullptr) tainted += MemberOf(*worker).state.tainted;
  }
  // They are the majority, or all that is left.
  if (2 * tainted > group_->members()) forgiven_ = true;
  const Roster roster = group_->MakeRoster(layers_);
  if (group_->torn()) {
    See(Moment::kTorn);
    if (checkpoint_.step > roster.sound_step) PassOver();
  }
  if (group_->lost()) See(Moment::kLost);
  // Durable before the orders that follow.
  const auto sound = std::make_shared<std::vector<AttemptRow>>();
  if (group_->torn()) {
    Write([this, sound] {
      Lineage lineage(rows_);
      for (const AttemptRow& row : *sound) {
        if (row.sound_through.has_value()) {
          lineage.SetSound(row.attempt, *row.sound_through);
        }
      }
      rows_ = lineage.rows();
    });
  }
  Call(&JobRecovery::OnRoster, roster);
  *sound = job_->lineage().rows();
  if (!group_.has_value()) return;
  SendGroupOrders();
  if (group_->AllDone()) OnAllDone();
}

void World::TakeLeaver(const GroupLeaver& leaver) {
  switch (leaver.exit) {
    case GroupExit::kMismatch:
      See(Moment::kMismatch);
      accused_.insert(leaver.id);
      return job_->Distrust(leaver.id);
    case GroupExit::kDrained:
      return See(Moment::kDrained);
    case GroupExit::kSilent:
    case GroupExit::kHung:
    case GroupExit::kFailed:
      return See(Moment::kEvicted);
    default:
      return;
  }
}

void World::OnAllDone() {
  if (!gossip_ && group_->FindLastMismatch(last_step_)) return TakeNews();
  // The leveller hands its weights over.
  const Worker* const worker = Find(group_->view()->leveller);
  if (worker == nullptr || !MemberOf(*worker).is_open()) return;
  const State& state = MemberOf(*worker).state;
  if (state.tainted && !forgiven_) Fail("the result is of a wrong state");
  finished_ = true;
}

void World::SeeTransition(const JobTransition& row) {
  if (row.to == JobPhase::kLeaving) {
    group_.reset();
    renewals_.clear();
    fetching_ = false;
  }
  if (row.cause == JobCause::kNotAdopted) See(Moment::kNotAdopted);
  if (row.cause != JobCause::kAdopted) return;
  See(Moment::kAdopted);
  const std::vector<RunPlace>& places = job_->places();
  if (std::none_of(places.begin(), places.end(), [this](const RunPlace& each) {
        return heard_.count(each.process) > 0;
      })) {
    Fail(
        "a group is adopted, and nobody who has taken part has said that it "
        "goes on");
  }
}

void World::Lose(int64_t index, const std::string& why) {
  Base::Lose(index, why);
  if (!group_.has_value()) return;
  CheckProcess(index);
  TakeNews();
}

void World::SetDraining(int64_t index, bool drains) {
  Base::SetDraining(index, drains);
  if (!group_.has_value()) return;
  group_->SetDraining({index + 1}, drains);
  TakeNews();
}

void World::CheckWatchdogs() {
  if (!group_.has_value()) return;
  for (const auto& [index, link] : links_) {
    CheckProcess(index);
    if (group_->ended()) return TakeNews();
  }
  group_->OnTick(Now());
  TakeNews();
  if (!group_.has_value()) return;
  RenewExcluded();
  SendGroupOrders();
}

// --- Checkpoints, exports, stop and resume -----------------------------------

void World::MakeCheckpoint() {
  if (fetching_ || finished_ || !job_->floor().has_value()) return;
  const Cut safe = *job_->floor();
  // The states after the last step are compared before the job is saved.
  if (safe == Cut() || safe.step == last_step_) return;
  const int64_t last = std::max(checkpoint_.step, failed_at_);
  const bool is_due =
      checkpoint_every_ > 0 &&
      safe.step >= (last / checkpoint_every_ + 1) * checkpoint_every_;
  if (is_due || (exports_ && safe.step >= deposit_from_)) FetchCheckpoint(safe);
}

void World::FetchCheckpoint(Cut cut) {
  fetching_ = true;
  Call(&JobRecovery::SetPin, cut, true);
  const auto holders = job_->HoldersOf(cut);
  AfterOn(coordinator_, Between(2, 60) * kMs, [this, cut, holders] {
    std::map<int, uint64_t> layers;
    for (int layer = 0; layer < layers_; ++layer) {
      std::vector<MemberId> order = holders[layer];
      if (layer % 2 == 1) std::reverse(order.begin(), order.end());
      for (const MemberId& holder : order) {
        const Worker* const worker = Find(holder);
        if (worker == nullptr || !worker->responds() || worker->cut) continue;
        const auto found = worker->pieces.find({cut, layer});
        if (found != worker->pieces.end()) layers[layer] = found->second;
      }
    }
    OnFetched(cut, layers);
  });
}

void World::OnFetched(Cut cut, const std::map<int, uint64_t>& layers) {
  fetching_ = false;
  Call(&JobRecovery::SetPin, cut, false);
  if (std::ssize(layers) < layers_ || !job_->lineage().IsValid(cut)) {
    failed_at_ = cut.step;
    exports_ = stops_ = false;
    return;
  }
  CheckUse("the coordinator", cut, layers);
  Trace("checkpoint of ", cut);
  See(Moment::kCheckpoint);
  ++sums_.checkpoints;
  checkpoint_ = cut;
  checkpoint_layers_ = layers;
  job_->OnCheckpoints({cut});
  if (!exports_ || cut.step < deposit_from_) return;
  exports_ = false;
  See(Moment::kExport);
  if (asked_attempt_ == job_->attempt() && cut.step < last_step_ &&
      cut.step <= asked_step_) {
    Fail("an export has step ", cut.step,
         ", which was reported before it was "
         "asked for");
  }
  if (std::exchange(stops_, false)) ResumeJob();
}

void World::AskExport(bool stops) {
  exports_ = true;
  stops_ = stops;
  asked_attempt_ = job_->attempt();
  asked_step_ = reached_;
  deposit_from_ = std::min(reached_ + 1, last_step_);
  if (joint_.flaw == JointFlaw::kStopAtReportedStep) deposit_from_ = reached_;
  Trace(stops ? "stop" : "export", " from step ", deposit_from_, " on");
  SendGroupOrders();
}

// The job ends here, and another one goes on from its checkpoint.
void World::ResumeJob() {
  See(Moment::kResumed);
  ++job_number_;
  Trace("job ", job_number_, " goes on from step ", checkpoint_.step);
  most_members_ = Between(1, std::ssize(workers_));
  needed_workers_ = std::min<int64_t>(needed_workers_, most_members_);
  writes_.clear();
  outbox_.clear();
  issued_ = written_ = 0;
  rows_.clear();
  places_.clear();
  bases_.clear();
  excluded_.clear();
  renewals_.clear();
  sent_.clear();
  kept_ = disk_ = {};
  newest_announced_ = reached_ = failed_at_ = deposit_from_ = 0;
  false_starts_ = 0;
  told_floor_ = Cut();
  used_[{job_number_, {0, checkpoint_.step}}] =
      used_[{job_number_ - 1, checkpoint_}];
  checkpoint_ = {0, checkpoint_.step};
  job_ = MakeJob();
  for (const auto& [index, id] : attached_) {
    if (links_[index].lost) continue;
    JobReport nothing;
    nothing.pieces.emplace();
    Call(&JobRecovery::OnAttached, id, MachineOf(index), NameOf(index));
    Call(&JobRecovery::OnReport, id, nothing);
    Call(&JobRecovery::SetDraining, id.worker, draining_.count(index) > 0);
    SendNoRun(id);
  }
  BeginJob();
}

// --- Faults ------------------------------------------------------------------

void World::MaybeFault() {
  if (!MayFault() || !coordinator_.responds()) return;
  Worker& worker = Pick(workers_);
  const int64_t which = Below(kFaults + 6);
  const bool trains = group_.has_value() && group_->begun() && !exports_ &&
                      phase_ == JobPhase::kRunning;
  if (which >= kFaults + 4) {
    if (!Corrupt(worker)) return;
  } else if (which >= kFaults) {
    if (!trains) return;
    AskExport(/*stops=*/which < kFaults + 2);
  } else {
    const auto fault = static_cast<Fault>(which);
    // Nobody moves a group, and a group's store is never older than it.
    if (fault != Fault::kMove && fault != Fault::kRollBack) {
      Strike(fault, worker);
    }
    return;
  }
  CountFault();
}

// A bit of its memory flips.
bool World::Corrupt(Worker& worker) {
  Member& member = MemberOf(worker);
  if (corrupted_ || gossip_ || !worker.responds() ||
      worker.phase != WorkPhase::kRunning || !member.has_state ||
      !member.is_open() || worker.step + 2 >= last_step_) {
    return false;
  }
  const std::optional<View>& view = member.rounds->view();
  // In a view on its way it may be alone, with nobody to compare states.
  if (!view.has_value() || view->members.size() < 2 ||
      view->id != kept_.view.id) {
    return false;
  }
  Trace(worker, " has a wrong state after ", worker.step, " steps");
  member.state.value = MixSeed({6, member.state.value});
  member.state.tainted = corrupted_ = true;
  return true;
}

// --- Checks ------------------------------------------------------------------

void World::CheckUse(const std::string& by, Cut cut,
                     const std::map<int, uint64_t>& layers) {
  if (forgiven_) return;
  const Origin origin = origins_[layers.at(0)];
  for (const auto& [layer, content] : layers) {
    if (origins_[content].state == origin.state) continue;
    return Fail(by, " mixes the states of two processes at ", cut);
  }
  if (origin.step != cut.step) {
    Fail(by, " takes the state after ", origin.step, " steps for ", cut);
  }
  if (gossip_) return;
  if (origin.tainted) Fail(by, " uses a wrong state of ", cut);
  const auto [used, is_new] =
      used_.emplace(std::pair(job_number_, cut), origin.state);
  if (!is_new && used->second != origin.state) {
    Fail(by, " uses another state of ", cut, " than was used before");
  }
}

void World::CheckRow(const StoreAttempt& store) {
  const auto& [attempt, base, sound] = store.row;
  if (!job_->lineage().IsValid(base)) {
    return Fail("attempt ", attempt, " goes on from ", base,
                ", which is not valid");
  }
  if (base.step < checkpoint_.step && !forgiven_) {
    Fail("attempt ", attempt, " goes on from ", base, ", below the checkpoint ",
         checkpoint_);
  }
  if (base.step < reached_) See(Moment::kGoesBack);
  for (const Worker& worker : workers_) {
    const auto link = links_.find(worker.index);
    if (!worker.alive() || link == links_.end() || worker.job != job_number_) {
      continue;
    }
    const bool leaves_job = MemberOf(worker).job != job_number_;
    const int64_t runs = leaves_job ? 0 : worker.ordered_attempt();
    if (!link->second.lost) {
      const bool has_pieces =
          !worker.pieces.empty() &&
          worker.pieces.rbegin()->first.cut.attempt >= attempt;
      if (has_pieces || runs >= attempt) {
        Fail("attempt ", attempt, " is known to ", worker, " already");
      }
      continue;
    }
    // One that has a later state may come back.
    const absl::Duration lost =
        absl::Microseconds(now_us() - link->second.lost_at_us);
    if (base.step < reached_ && runs == job_->attempt() &&
        worker.step > base.step && excluded_.count(worker.id()) == 0 &&
        (worker.cut || worker.frozen()) &&
        lost < return_period_ - absl::Milliseconds(20)) {
      Fail("attempt ", attempt, " goes on from ", base, ", though step ",
           reached_, " was reported, and ", worker, " may come back");
    }
  }
}

// --- What is counted ---------------------------------------------------------

const std::vector<world::Count<WorldResult>>& WorldResult::Counts() {
  using R = WorldResult;
  static const auto* const counts = new std::vector<world::Count<R>>{
      {"faults", &R::faults},       {"jobs", &R::jobs},
      {"attempts", &R::attempts},   {"views", &R::views},
      {"steps", &R::steps},         {"checkpoints", &R::checkpoints},
      {"events", &R::events},       {"ended: done", &R::done},
      {"ended: paused", &R::paused}};
  return *counts;
}

// The tables of the recovery count here, too; nobody asks for their cells.
world::Coverage WorldResult::NewCoverage() {
  static const auto* const tables = [] {
    auto* const made = new world::CoverageTables(recover_world::Tables());
    for (world::Table& table : made->tables) {
      for (world::TableRow& row : table.rows) {
        row.cells.assign(row.cells.size(), '-');
      }
    }
    world::Table group{"of a group", {}, {"rounds", "gossip"}};
    for (const char* const name :
         {"view", "join", "evicted", "drained", "mismatch", "torn", "lost",
          "adopted", "not adopted", "restored", "checkpoint", "export",
          "resumed", "from a checkpoint", "goes back"}) {
      group.rows.push_back({name, "xx"});
    }
    for (const Moment only_rounds : {Moment::kMismatch, Moment::kTorn}) {
      group.rows[static_cast<int>(only_rounds)].cells = "x-";
    }
    made->tables.push_back(group);
    return made;
  }();
  return world::Coverage(*tables);
}

WorldResult RunWorld(const WorldOptions& options, world::Coverage* coverage) {
  return World(options, coverage).Run();
}

}  // namespace paceline::joint_world
