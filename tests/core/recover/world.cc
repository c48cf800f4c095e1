// The world's clock, its checks, and what it counts.
#include "tests/core/recover/world.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/core/recover/world_state.h"

namespace paceline::recover_world {
namespace {

constexpr int64_t kFaultsUntilUs = 3'000 * kMs;
constexpr int64_t kCalmUs = 20'000 * kMs;

}  // namespace

// --- The clock ---------------------------------------------------------------

World::World(const WorldOptions& options, world::Coverage* coverage)
    : Kernel(options.seed, options.trace, coverage), options_(options) {
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
  records_ = OneIn(4);
  settles_ = OneIn(6);
  checkpoints_ = OneIn(4);
  may_roll_back_ = OneIn(8);
  if (OneIn(4)) most_losses_ = 2;
  return_period_ = absl::Milliseconds(Between(2, 10) * 100);
  needed_workers_ = Between(1, std::max<int64_t>(1, count - 2));
  idle_workers_ = Between(0, 2);
  two_stages_ = Between(0, 2);
  AllowFaults(Between(2, 7));
  for (int64_t i = 0; i < count; ++i) {
    Worker& worker = workers_.emplace_back();
    worker.index = i;
    worker.machine = {i % machines};
    worker.stays_dead = OneIn(4);
    worker.settled = !settles_ || OneIn(2);
  }
  if (OneIn(8)) Pick(workers_).lacks_file = true;
}

void World::Play() {
  for (Worker& worker : workers_) {
    // One that joins comes when the others run already.
    const int64_t delay = OneIn(6) ? Between(50, 400) * kMs : Between(0, kMs);
    After(delay, [this, &worker] {
      if (!worker.alive()) StartProcess(worker);
    });
  }
  After(Between(0, 10) * kMs, [this] { StartCoordinator(); });
  const int64_t calm_at = Between(300, kFaultsUntilUs / kMs) * kMs;
  RunUntil([&] {
    if (HasEnded()) return true;
    if (!calm() && (now_us() >= calm_at || !MayFault())) Calm();
    if (calm_us() > kCalmUs) Fail("not ended: ", WhyNotEnded());
    return false;
  });
  if (violation().empty()) CheckEnd();
}

WorldResult World::Run() {
  Play();
  result_.violation = violation();
  result_.events = events();
  result_.faults = faults();
  result_.done = phase_ == JobPhase::kDone;
  result_.paused = phase_ == JobPhase::kPaused;
  result_.failed = phase_ == JobPhase::kFailed;
  return result_;
}

// Paused counts as the end only in the calm, for want of workers.
bool World::HasEnded() const {
  if (job_ == nullptr) return false;
  if (phase_ == JobPhase::kDone || phase_ == JobPhase::kFailed) return true;
  if (phase_ != JobPhase::kPaused || calm_us() < kCalmUs / 2) return false;
  int64_t usable = 0;
  for (const Worker& worker : workers_) {
    if (worker.alive() && !worker.lacks_file) ++usable;
  }
  return usable < needed_workers_;
}

std::string World::WhyNotEnded() const {
  if (job_ == nullptr) return "no coordinator";
  std::string text = absl::StrCat(JobPhaseName(phase_), ", ", job_->why());
  for (const Worker& worker : workers_) {
    if (!worker.alive()) continue;
    absl::StrAppend(&text, "; ", Word(worker), " ", WorkName(worker.phase),
                    " attempt ", worker.ordered_attempt(), " step ",
                    worker.step, " floor ",
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
      if (!worker.alive() || worker.pieces.count({cut, layer}) == 0) continue;
      if (reachable_only) {
        const auto link = links_.find(worker.index);
        if (worker.frozen() || worker.cut || worker.compute.frozen() ||
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
  if (job_ != nullptr && phase_ != JobPhase::kAdopting && !runs) return;
  std::set<MachineId> machines;
  for (const Worker& worker : workers_) {
    if (worker.alive() && !worker.refuses &&
        draining_.count(worker.index) == 0) {
      machines.insert(worker.machine);
    }
  }
  const int followers = FollowersOf(copies_, static_cast<int>(machines.size()));
  if (!LivesComplete(cut, true, followers + 1)) return;
  Trace(cut, " is safe on ", followers + 1);
  safe_ = cut;
  safe_followers_ = followers;
  lost_machines_.clear();
  for (const world::CutLink& link : network_.cuts()) {
    lost_machines_.insert(workers_[link.from].machine);
  }
}

void World::CheckRow(const StoreAttempt& store) {
  const Cut base = store.row.base;
  if (!IsValid(base, store.row.attempt)) {
    return Fail("attempt ", store.row.attempt, " goes on from ", base,
                ", which is not valid");
  }
  for (const Worker& worker : workers_) {
    const auto link = links_.find(worker.index);
    if (!worker.alive() || link == links_.end() || link->second.lost) continue;
    const bool has_pieces =
        !worker.pieces.empty() &&
        worker.pieces.rbegin()->first.cut.attempt >= store.row.attempt;
    if (has_pieces || worker.ordered_attempt() >= store.row.attempt) {
      Fail("attempt ", store.row.attempt, " is known to ", worker, " already");
    }
  }
  // A cut without its records is passed over for one that is safe, too.
  const int64_t promised = records_ && safe_.step > recorded_
                               ? std::min(told_floor_.step, safe_.step)
                               : safe_.step;
  if (static_cast<int>(lost_machines_.size()) <= safe_followers_ &&
      base.step < promised) {
    Fail("attempt ", store.row.attempt, " goes on from ", base, ", though ",
         safe_, " was safe and ", lost_machines_.size(),
         " machines were lost since");
  }
  if (base.step >= told_floor_.step) return;
  for (const Worker& worker : workers_) {
    const auto link = links_.find(worker.index);
    if (!worker.alive() || link == links_.end() || !link->second.lost ||
        excluded_.count(worker.id()) > 0 || worker.pieces.empty() ||
        absl::Microseconds(now_us() - link->second.lost_at_us) >=
            return_period_ - absl::Milliseconds(20)) {
      continue;
    }
    // A process that was started anew has nothing of it.
    if (!worker.cut && !worker.frozen()) continue;
    Fail("attempt ", store.row.attempt, " goes on from ", base,
         " below the floor ", told_floor_, ", though ", worker,
         " may come back");
  }
}

void World::CheckOrder(const MemberId& to, const JobOrder& order) {
  if (order.keep.floor.has_value() && *order.keep.floor > told_floor_) {
    told_floor_ = *order.keep.floor;
    Trace("floor ", told_floor_);
    ++result_.floors;
  }
  if (!order.run.has_value()) return;
  const RunPlan& run = *order.run;
  if (!IsStored(run.attempt)) {
    Fail(Of(to), " hears of attempt ", run.attempt, ", which is not stored");
  }
  const auto [base, is_new] = bases_.emplace(run.attempt, run.base);
  if (!is_new && base->second != run.base) {
    if (!may_roll_back_) {
      Fail("attempt ", run.attempt, " has two bases");
    }
    // The store forgot it, and nobody who lives has heard of it.
    base->second = run.base;
    std::erase_if(expected_, [&](const auto& each) {
      return each.first.first.attempt >= run.attempt;
    });
  }
  if (run.attempt < newest_announced_ && !may_roll_back_) {
    Fail("attempt ", run.attempt, " after ", newest_announced_);
  }
  newest_announced_ = std::max(newest_announced_, run.attempt);
  for (const RunPlace& place : run.places) {
    if (excluded_.count(place.process) > 0) {
      Fail("an excluded process of ", Of(place.process), " takes part");
    }
  }
}

void World::CheckExclusion(const MemberId& process) {
  if (phase_ != JobPhase::kLeaving) return;
  const absl::Duration had = absl::Microseconds(now_us() - leaving_since_us_);
  if (had >= Policy().leave_bound) return;
  Fail(Of(process), " is excluded after ", absl::FormatDuration(had));
}

void World::CheckEnd() {
  // Two workers that do not reach each other are a reason to give up, too.
  // And so is a file that no worker has that has come so far.
  const bool lacks = absl::StrContains(job_->why(), "it lacks the data");
  if (phase_ == JobPhase::kFailed && !failed_for_good_ &&
      network_.cuts().empty() && !lacks) {
    return Fail("failed: ", job_->why());
  }
  if (phase_ != JobPhase::kDone) return;
  const int64_t attempt = rows_.back().attempt;
  for (int layer = 0; layer < layers_; ++layer) {
    const auto result = results_.find({attempt, layer});
    if (result == results_.end() ||
        result->second != Expected(attempt, last_step_, layer)) {
      Fail("the result of layer ", layer, " is another one");
    }
  }
}

WorldResult RunWorld(const WorldOptions& options, world::Coverage* coverage) {
  return World(options, coverage).Run();
}

}  // namespace paceline::recover_world
