// The world's clock, its checks, and what it counts.
#include "tests/core/recover/world.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/core/recover/world_state.h"

namespace paceline::recover_world {
namespace {

constexpr int64_t kFaultsUntilUs = 3'000 * kMs;
constexpr int64_t kCalmUs = 20'000 * kMs;

constexpr const char* kFaultNames[kFaults] = {
    "kill",        "kill machine",  "restart",   "freeze",
    "hang",        "partition",     "cut link",  "fail",
    "move",        "drain",         "crash",     "freeze coordinator",
    "slow store",  "failing store", "roll back", "slow reports",
    "slow orders", "refuse",        "standstill"};
constexpr const char* kWorkNames[kWorkPhases] = {
    "idle", "gathering", "running", "stopped", "done", "failed"};

bool Later(int64_t at, int64_t number, int64_t other_at, int64_t other_number) {
  return at != other_at ? at > other_at : number > other_number;
}

}  // namespace

const char* FaultName(Fault fault) {
  return kFaultNames[static_cast<int>(fault)];
}

// --- Coverage ----------------------------------------------------------------

void Coverage::Add(const Coverage& other) {
  for (int i = 0; i < kJobPhases; ++i) {
    for (int j = 0; j < kJobCauses; ++j) {
      transitions_[i][j] += other.transitions_[i][j];
    }
  }
  for (int i = 0; i < kFaults; ++i) {
    for (int j = 0; j < kJobPhases; ++j) faults_[i][j] += other.faults_[i][j];
    for (int j = 0; j < kWorkPhases; ++j) work_[i][j] += other.work_[i][j];
  }
  for (int i = 0; i < kWorkPhases; ++i) {
    for (int j = 0; j < kWorkPhases; ++j) {
      work_transitions_[i][j] += other.work_transitions_[i][j];
    }
  }
}

namespace {

// Whether the fault can come in the phase: a job that has ended is not
// disturbed, one runs whenever it is moved, a queue is left at once, and nobody
// runs where replicas finish.
bool CanHit(Fault fault, JobPhase phase) {
  if (phase == JobPhase::kQueued || phase == JobPhase::kDone ||
      phase == JobPhase::kFailed) {
    return false;
  }
  if (fault == Fault::kFail && phase == JobPhase::kFinishing) return false;
  const bool runs_only = fault == Fault::kMove || fault == Fault::kRollBack;
  return !runs_only || phase == JobPhase::kRunning;
}

// A run fails where none is ordered: it is one that was not heard of for long.
bool IsRare(Fault fault, JobPhase phase) {
  return phase == JobPhase::kFinishing ||
         (fault == Fault::kFail &&
          (phase == JobPhase::kAdopting || phase == JobPhase::kChoosing ||
           phase == JobPhase::kPaused));
}

// A job that runs is all that is moved, or loses a row.
bool CanHit(Fault fault, WorkPhase phase) {
  if (fault == Fault::kFail) return phase != WorkPhase::kIdle;
  if (fault != Fault::kMove && fault != Fault::kRollBack) return true;
  return phase == WorkPhase::kIdle || phase == WorkPhase::kRunning;
}

// Few are in these phases, and not for long.
bool IsRare(WorkPhase phase) {
  return phase == WorkPhase::kStopped || phase == WorkPhase::kDone ||
         phase == WorkPhase::kFailed;
}

// The rows of the worker's table that lead to another phase.
struct WorkTransition {
  WorkPhase from;
  WorkPhase to;
  bool is_rare = false;
};
constexpr WorkTransition kWorkTransitions[] = {
    {WorkPhase::kIdle, WorkPhase::kGathering},
    {WorkPhase::kIdle, WorkPhase::kFailed, true},
    {WorkPhase::kGathering, WorkPhase::kRunning},
    {WorkPhase::kGathering, WorkPhase::kDone},
    {WorkPhase::kGathering, WorkPhase::kFailed},
    {WorkPhase::kGathering, WorkPhase::kIdle},
    {WorkPhase::kRunning, WorkPhase::kStopped},
    {WorkPhase::kRunning, WorkPhase::kDone},
    {WorkPhase::kRunning, WorkPhase::kFailed},
    {WorkPhase::kRunning, WorkPhase::kIdle},
    {WorkPhase::kStopped, WorkPhase::kIdle},
    {WorkPhase::kDone, WorkPhase::kIdle},
    {WorkPhase::kFailed, WorkPhase::kIdle},
};

bool IsRare(const JobTransition& row) {
  return row.cause == JobCause::kHopeless || row.from == JobPhase::kFinishing;
}

}  // namespace

std::vector<std::string> Coverage::Problems(int64_t schedules) const {
  std::vector<std::string> problems;
  // Only many schedules must show what is rare.
  const auto need = [&](int64_t hits, bool is_rare, const auto&... what) {
    if (hits > 0 || (is_rare && schedules < 100'000)) return;
    problems.push_back(absl::StrCat(what..., " never came up"));
  };
  for (const JobTransition& row : JobTransitions()) {
    need(transitions_[static_cast<int>(row.from)][static_cast<int>(row.cause)],
         IsRare(row), JobPhaseName(row.from), ", ", JobCauseName(row.cause));
  }
  for (int i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    for (int j = 0; j < kJobPhases; ++j) {
      const auto phase = static_cast<JobPhase>(j);
      if (!CanHit(fault, phase)) continue;
      need(faults_[i][j], IsRare(fault, phase), FaultName(fault), " while ",
           JobPhaseName(phase));
    }
    for (int j = 0; j < kWorkPhases; ++j) {
      const auto phase = static_cast<WorkPhase>(j);
      if (!CanHit(fault, phase)) continue;
      need(work_[i][j], IsRare(phase), FaultName(fault),
           " of a worker that is ", kWorkNames[j]);
    }
  }
  for (const WorkTransition& row : kWorkTransitions) {
    const int from = static_cast<int>(row.from);
    const int to = static_cast<int>(row.to);
    need(work_transitions_[from][to], row.is_rare, "a worker, ",
         kWorkNames[from], " -> ", kWorkNames[to], ",");
  }
  return problems;
}

std::string Coverage::Text() const {
  std::string text;
  const auto add = [&text](const char* corner, const auto& rows,
                           const auto& columns, const auto& counts) {
    absl::StrAppendFormat(&text, "%-20s", corner);
    for (const auto& column : columns) {
      absl::StrAppendFormat(&text, " %9s", column);
    }
    for (size_t i = 0; i < std::size(counts); ++i) {
      absl::StrAppendFormat(&text, "\n%-20s", rows[i]);
      for (const int64_t count : counts[i]) {
        absl::StrAppendFormat(&text, " %9d", count);
      }
    }
    text += "\n\n";
  };
  std::vector<std::string> phases;
  for (int j = 0; j < kJobPhases; ++j) {
    phases.emplace_back(JobPhaseName(static_cast<JobPhase>(j)));
  }
  add("fault / job", kFaultNames, phases, faults_);
  add("fault / worker", kFaultNames, kWorkNames, work_);
  add("worker from / to", kWorkNames, kWorkNames, work_transitions_);
  for (const JobTransition& row : JobTransitions()) {
    absl::StrAppendFormat(
        &text, "%9d  %s, %s -> %s\n",
        transitions_[static_cast<int>(row.from)][static_cast<int>(row.cause)],
        JobPhaseName(row.from), JobCauseName(row.cause), JobPhaseName(row.to));
  }
  return text;
}

// --- The clock ---------------------------------------------------------------

World::World(const WorldOptions& options, Coverage* coverage)
    : options_(options), coverage_(coverage), random_(options.seed) {
  layers_ = static_cast<int>(Between(4, 8));
  last_step_ = Between(15, 40);
  copies_ = static_cast<int>(Between(1, 2));
  snapshots_.every = OneIn(20) ? 0 : Between(2, 6);
  snapshots_.patience = absl::Milliseconds(200);
  int64_t count = Between(2, 6);
  const int64_t machines = OneIn(2) ? Between(2, count) : count;
  if (OneIn(4)) {
    // Nothing else that is drawn depends on it.
    SplitMix64 random(options.seed);
    replicas_.resize(2 + random.Below(2));
    int64_t sum = 0;
    for (int64_t& each : replicas_) {
      each = 1 + static_cast<int64_t>(random.Below(3));
      sum += each;
    }
    count = std::max(count, sum);
  }
  uploads_ = OneIn(2);
  records_ = OneIn(4);
  settles_ = OneIn(6);
  checkpoints_ = OneIn(4);
  may_roll_back_ = OneIn(8);
  if (OneIn(4)) most_losses_ = 2;
  return_period_ = absl::Milliseconds(Between(2, 10) * 100);
  slow_pulls_ = OneIn(3);
  needed_workers_ = Between(1, std::max<int64_t>(1, count - 2));
  idle_workers_ = Between(0, 2);
  two_stages_ = Between(0, 2);
  faults_left_ = Between(2, 7);
  workers_.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    workers_[i].index = i;
    workers_[i].machine = {i % machines};
    workers_[i].stays_dead = OneIn(4);
    workers_[i].settled = !settles_ || OneIn(2);
  }
  if (OneIn(8)) workers_[random_.Below(count)].lacks_file = true;
}

void World::After(int64_t delay_us, Task task) {
  heap_.push_back({now_us_ + delay_us, numbers_++, std::move(task)});
  std::push_heap(heap_.begin(), heap_.end(),
                 [](const Event& a, const Event& b) {
                   return Later(a.at_us, a.number, b.at_us, b.number);
                 });
}

void World::Fail(const std::string& what) {
  if (result_.violation.empty()) {
    result_.violation = absl::StrFormat("at %.1f ms: %s", now_us_ / 1e3, what);
  }
}

void World::Trace(const std::string& line) const {
  if (options_.trace) absl::PrintF("%9.1f %s\n", now_us_ / 1e3, line);
}

WorldResult World::Run() {
  for (Worker& worker : workers_) {
    // One that joins comes when the others run already.
    const int64_t delay = OneIn(6) ? Between(50, 400) * kMs : Between(0, kMs);
    After(delay, [this, &worker] {
      if (!worker.alive) StartProcess(worker);
    });
  }
  After(Between(0, 10) * kMs, [this] { StartCoordinator(); });
  const int64_t calm_at = Between(300, kFaultsUntilUs / kMs) * kMs;
  while (result_.violation.empty() && !HasEnded()) {
    if (!calm_ && (now_us_ >= calm_at || faults_left_ <= 0)) {
      faults_left_ = 0;
      Calm();
    }
    if (calm_ && now_us_ - calm_since_us_ > kCalmUs) {
      Fail(absl::StrCat("not ended: ", WhyNotEnded()));
      break;
    }
    std::pop_heap(heap_.begin(), heap_.end(),
                  [](const Event& a, const Event& b) {
                    return Later(a.at_us, a.number, b.at_us, b.number);
                  });
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_us_ = event.at_us;
    ++result_.events;
    event.task();
  }
  result_.end = phase_;
  if (result_.violation.empty()) CheckEnd();
  return result_;
}

// Paused counts as the end only in the calm, for want of workers.
bool World::HasEnded() const {
  if (!job_.has_value()) return false;
  if (phase_ == JobPhase::kDone || phase_ == JobPhase::kFailed) return true;
  if (!calm_ || phase_ != JobPhase::kPaused ||
      now_us_ - calm_since_us_ < kCalmUs / 2) {
    return false;
  }
  int64_t usable = 0;
  for (const Worker& worker : workers_) {
    if (worker.alive && !worker.lacks_file) ++usable;
  }
  return usable < needed_workers_;
}

std::string World::WhyNotEnded() const {
  if (!job_.has_value()) return "no coordinator";
  std::string text = absl::StrCat(JobPhaseName(phase_), ", ", job_->why());
  for (const Worker& worker : workers_) {
    if (!worker.alive) continue;
    absl::StrAppend(&text, "; w", worker.index, " ",
                    kWorkNames[static_cast<int>(worker.phase)], " attempt ",
                    worker.ordered_attempt(), " step ", worker.step, " floor ",
                    worker.keep.floor.value_or(Cut()).step);
  }
  return text;
}

// --- Checks ------------------------------------------------------------------

// The state of a layer in the chain that nothing disturbs.
uint64_t World::Expected(int64_t attempt, int64_t step, int layer) {
  while (attempt > 0 && step <= bases_[attempt].step) {
    attempt = bases_[attempt].attempt;
  }
  if (attempt == 0 || step == 0) {
    return MixSeed({options_.seed, static_cast<uint64_t>(layer)});
  }
  const auto [found, is_new] =
      expected_.emplace(std::pair(Cut{attempt, step}, layer), 0);
  if (is_new) {
    const uint64_t before = Expected(attempt, step - 1, layer);
    expected_[{{attempt, step}, layer}] = MixSeed(
        {before, static_cast<uint64_t>(attempt), static_cast<uint64_t>(step)});
  }
  return expected_[{{attempt, step}, layer}];
}

bool World::IsValid(Cut cut, int64_t for_attempt) const {
  if (cut == Cut()) return true;
  bool known = false;
  for (const AttemptRow& row : rows_) {
    if (row.attempt >= for_attempt) break;
    known = known || row.attempt == cut.attempt;
    if (row.attempt > cut.attempt && row.base.step < cut.step) return false;
  }
  return known;
}

bool World::IsStored(int64_t attempt) const {
  return std::any_of(rows_.begin(), rows_.end(), [=](const AttemptRow& row) {
    return row.attempt == attempt;
  });
}

// reachable_only: as far as the coordinator may know.
bool World::LivesComplete(Cut cut, bool reachable_only, size_t machines) const {
  for (int layer = 0; layer < layers_; ++layer) {
    std::set<MachineId> holders;
    for (const Worker& worker : workers_) {
      if (!worker.alive || worker.pieces.count({cut, layer}) == 0) continue;
      if (reachable_only) {
        const auto link = links_.find(worker.index);
        if (worker.frozen || worker.cut || worker.hung ||
            link == links_.end() || link->second.lost ||
            draining_.count(worker.index) > 0 ||
            excluded_.count(worker.id()) > 0) {
          continue;
        }
      }
      holders.insert(worker.machine);
    }
    if (holders.size() < machines) return false;
  }
  return true;
}

// Somebody holds more of it than before: is it safe now?
void World::SeePiece(Cut cut) {
  if (cut <= safe_ || !IsValid(cut)) return;
  // When all leave, whoever has said so already may get a piece still.
  const bool runs = phase_ == JobPhase::kStarting ||
                    phase_ == JobPhase::kRunning ||
                    phase_ == JobPhase::kStopping;
  if (job_.has_value() && phase_ != JobPhase::kAdopting && !runs) return;
  std::set<MachineId> machines;
  for (const Worker& worker : workers_) {
    if (worker.alive && !worker.refuses && draining_.count(worker.index) == 0) {
      machines.insert(worker.machine);
    }
  }
  const int followers = FollowersOf(copies_, static_cast<int>(machines.size()));
  if (!LivesComplete(cut, true, followers + 1)) return;
  Trace(absl::StrCat(CutText(cut), " is safe on ", followers + 1));
  safe_ = cut;
  safe_followers_ = followers;
  lost_machines_.clear();
  for (const auto& [link, since] : cut_links_) {
    lost_machines_.insert(workers_[link.first].machine);
    lost_machines_.insert(workers_[link.second].machine);
  }
}

void World::CheckRow(const StoreAttempt& store) {
  const Cut base = store.row.base;
  if (!IsValid(base, store.row.attempt)) {
    return Fail(absl::StrCat("attempt ", store.row.attempt, " goes on from ",
                             CutText(base), ", which is not valid"));
  }
  for (const Worker& worker : workers_) {
    const auto link = links_.find(worker.index);
    if (!worker.alive || link == links_.end() || link->second.lost) continue;
    const bool has_pieces =
        !worker.pieces.empty() &&
        worker.pieces.rbegin()->first.cut.attempt >= store.row.attempt;
    if (has_pieces || worker.ordered_attempt() >= store.row.attempt) {
      Fail(absl::StrCat("attempt ", store.row.attempt, " is known to w",
                        worker.index, " already"));
    }
  }
  // A cut without its records is passed over for one that is safe, too.
  const int64_t promised = records_ && safe_.step > recorded_
                               ? std::min(told_floor_.step, safe_.step)
                               : safe_.step;
  if (static_cast<int>(lost_machines_.size()) <= safe_followers_ &&
      base.step < promised) {
    Fail(absl::StrCat("attempt ", store.row.attempt, " goes on from ",
                      CutText(base), ", though ", CutText(safe_),
                      " was safe and ", lost_machines_.size(),
                      " machines were lost since"));
  }
  if (base.step >= told_floor_.step) return;
  for (const Worker& worker : workers_) {
    const auto link = links_.find(worker.index);
    if (!worker.alive || link == links_.end() || !link->second.lost ||
        excluded_.count(worker.id()) > 0 || worker.pieces.empty() ||
        absl::Microseconds(now_us_ - link->second.lost_at_us) >=
            return_period_ - absl::Milliseconds(20)) {
      continue;
    }
    // A process that was started anew has nothing of it.
    if (!worker.cut && !worker.frozen) continue;
    Fail(absl::StrCat("attempt ", store.row.attempt, " goes on from ",
                      CutText(base), " below the floor ", CutText(told_floor_),
                      ", though w", worker.index, " may come back"));
  }
}

void World::CheckOrder(const MemberId& to, const JobOrder& order) {
  if (order.keep.floor.has_value() && *order.keep.floor > told_floor_) {
    told_floor_ = *order.keep.floor;
    Trace(absl::StrCat("floor ", CutText(told_floor_)));
    ++result_.floors;
  }
  if (!order.run.has_value()) return;
  const RunPlan& run = *order.run;
  if (!IsStored(run.attempt)) {
    Fail(absl::StrCat("w", to.worker.value - 1, " hears of attempt ",
                      run.attempt, ", which is not stored"));
  }
  const auto [base, is_new] = bases_.emplace(run.attempt, run.base);
  if (!is_new && base->second != run.base) {
    if (!may_roll_back_) {
      Fail(absl::StrCat("attempt ", run.attempt, " has two bases"));
    }
    // The store forgot it, and nobody who lives has heard of it.
    base->second = run.base;
    std::erase_if(expected_, [&](const auto& each) {
      return each.first.first.attempt >= run.attempt;
    });
  }
  if (run.attempt < newest_announced_ && !may_roll_back_) {
    Fail(absl::StrCat("attempt ", run.attempt, " after ", newest_announced_));
  }
  newest_announced_ = std::max(newest_announced_, run.attempt);
  for (const RunPlace& place : run.places) {
    if (excluded_.count(place.process) > 0) {
      Fail(absl::StrCat("an excluded process of w",
                        place.process.worker.value - 1, " takes part"));
    }
  }
}

void World::CheckExclusion(const MemberId& process) {
  if (phase_ != JobPhase::kLeaving) return;
  const absl::Duration had = absl::Microseconds(now_us_ - leaving_since_us_);
  if (had >= Policy().leave_bound) return;
  Fail(absl::StrCat("w", process.worker.value - 1, " is excluded after ",
                    absl::FormatDuration(had)));
}

void World::CheckEnd() {
  // Two workers that do not reach each other are a reason to give up, too.
  // And so is a file that no worker has that has come so far.
  const bool lacks = absl::StrContains(job_->why(), "it lacks the data");
  if (phase_ == JobPhase::kFailed && !failed_for_good_ && cut_links_.empty() &&
      !lacks) {
    return Fail(absl::StrCat("failed: ", job_->why()));
  }
  if (phase_ != JobPhase::kDone || !uploads_) return;
  for (int layer = 0; layer < layers_; ++layer) {
    if (uploads_done_.count(layer) == 0 ||
        uploads_done_[layer] !=
            Expected(uploaded_attempt_, last_step_, layer)) {
      Fail(absl::StrCat("the result of layer ", layer, " is another one"));
    }
  }
}

WorldResult RunWorld(const WorldOptions& options, Coverage* coverage) {
  return World(options, coverage).Run();
}

}  // namespace paceline::recover_world
