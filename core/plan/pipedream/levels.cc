#include "core/plan/pipedream/levels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/plan/pipedream/bits.h"

namespace paceline {
namespace {

// The relative error of long sums: the search looks for no smaller gain.
constexpr double kRounding = 1e-13;
// A row is solved up to this much more than the time in question, so that its
// rounding makes no difference.
constexpr double kMargin = 1e-12;

struct Bracket {
  double below;  // no plan is possible up to here
  double guess;
  double most;  // no plan takes longer
};

// Returns a time slightly above the least one at which `fits` allows a plan.
double LeastAllowed(PipedreamFits& fits, Bracket bracket) {
  constexpr double kClose = 1.02;
  double above = bracket.guess;
  for (double step = 0.02; !fits.Solve(above); step *= 2) {
    if (above >= bracket.most) return bracket.most;
    bracket.below = above;
    above = std::min(bracket.most, bracket.guess * (1 + step));
  }
  fits.Narrow();
  double step = 0.05;
  while (above > bracket.below * kClose) {
    const double next =
        std::max(above * (1 - step), std::sqrt(bracket.below * above));
    if (fits.Solve(next)) {
      above = next;
      fits.Narrow();
      step = std::min(2 * step, 0.5);
    } else {
      bracket.below = next;
    }
  }
  return above;
}

}  // namespace

PipedreamLevels::PipedreamLevels(const StateSpace& space,
                                 const LevelOptions& options)
    : space_(space), options_(options), row_(space, options.row) {}

LevelAnswer PipedreamLevels::SolveOneMachine() {
  row_.Solve(space_.last, {});
  const double seconds = row_.seconds()[0];
  if (seconds == HUGE_VAL) return {HUGE_VAL, {}};
  return {seconds, {{0, space_.last, 1, row_.StagesFrom(0, seconds)}}};
}

// Returns an upper bound of the time of any plan.
double PipedreamLevels::MostSeconds() const {
  const double parameters = space_.parameter_bytes[space_.last];
  double seconds = space_.seconds[space_.last] +
                   4 * parameters / options_.row.bytes_per_second +
                   4 * parameters / options_.bytes_per_second;
  if (!options_.row.count_transfers) return seconds;
  const double bandwidth =
      std::min(options_.row.bytes_per_second, options_.bytes_per_second);
  for (const double bytes : space_.boundary_bytes) {
    seconds = std::max(seconds, 2 * bytes / bandwidth);
  }
  return seconds;
}

double PipedreamLevels::RunSeconds(const Run& run, double row_seconds) const {
  const int first = fits_->StateOf(run.first);
  const int last = fits_->StateOf(run.last);
  const double share = 1.0 / run.machines;
  const double seconds = (row_seconds + RunSyncSeconds(options_, space_, first,
                                                       last, run.machines)) *
                         share;
  if (first == 0) return seconds;
  return std::max({seconds, RunTransferSeconds(options_, space_, first) * share,
                   RunTransferSeconds(options_, space_, last) * share});
}

// Returns the seconds of a run; infinity where it takes more than
// `most_seconds`.
double PipedreamLevels::ExactSeconds(const Run& run, double most_seconds) {
  const int later = Later(run.rest, run.machines);
  const double most_row = most_seconds * run.machines * (1 + kMargin);
  Known& known = known_[{run.last, later}];
  if (known.seconds.empty() || known.most_seconds < most_row) {
    row_.Solve(fits_->StateOf(run.last), {1, later}, most_row);
    known.most_seconds = most_row;
    known.seconds.clear();
    for (int rank = 0; rank < run.last; ++rank) {
      known.seconds.push_back(row_.seconds()[fits_->StateOf(rank)]);
    }
  }
  const double seconds = RunSeconds(run, known.seconds[run.first]);
  return seconds <= most_seconds ? seconds : HUGE_VAL;
}

// More devices after a run are never better, so times for fewer devices are
// lower bounds.
const PipedreamLevels::Known* PipedreamLevels::AtLeast(int last,
                                                       int later) const {
  auto after = known_.upper_bound({last, later});
  if (after == known_.begin()) return nullptr;
  --after;
  return after->first.first == last ? &after->second : nullptr;
}

// Puts the possible starts of `run`, as far as is known, into firsts_; does not
// read run.first.
void PipedreamLevels::PutFirsts(const Run& run, double most_seconds) {
  const uint64_t* const found = fits_->Firsts(run.last, run.machines);
  firsts_.assign(found, found + fits_->words());
  const Known* const known = AtLeast(run.last, Later(run.rest, run.machines));
  if (known == nullptr) return;
  for (int w = 0; w < fits_->words(); ++w) {
    for (uint64_t left = firsts_[w]; left != 0; left &= left - 1) {
      Run each = run;
      each.first = w * kBits + std::countr_zero(left);
      const double row = known->seconds[each.first];
      const double seconds =
          RunSeconds(each, std::min(row, known->most_seconds));
      const bool is_above = seconds > most_seconds;
      if (is_above) firsts_[w] &= ~(left & -left);
    }
  }
}

void PipedreamLevels::Reach(double most_seconds) {
  const int words = fits_->words();
  const int all = options_.machines;
  reach_.assign(static_cast<size_t>(all + 1) * words, 0);
  const int end = fits_->ranks() - 1;
  Add(reach_.data(), end);
  for (int last = end; last > 0; --last) {
    for (int rest = 0; rest < all; ++rest) {
      if (!Has(&reach_[rest * words], last)) continue;
      const int most = std::min(fits_->most_machines(), all - rest);
      for (int m = 1; m <= most; ++m) {
        PutFirsts({0, last, m, rest}, most_seconds);
        for (int w = 0; w < words; ++w) {
          reach_[(rest + m) * words + w] |= firsts_[w];
        }
      }
    }
  }
}

std::optional<PipedreamLevels::Run> PipedreamLevels::RunFrom(
    int first, int machines, double most_seconds) {
  const int words = fits_->words();
  for (int m = 1; m <= std::min(machines, fits_->most_machines()); ++m) {
    const int rest = machines - m;
    for (int last = fits_->ranks() - 1; last > first; --last) {
      if (!Has(&reach_[rest * words], last)) continue;
      if (!Has(fits_->Firsts(last, m), first)) continue;
      PutFirsts({0, last, m, rest}, most_seconds);
      if (Has(firsts_.data(), first)) return Run{first, last, m, rest};
    }
  }
  return std::nullopt;
}

std::vector<PipedreamLevels::Run> PipedreamLevels::Path(int machines,
                                                        double most_seconds) {
  std::vector<Run> runs;
  int first = 0;
  while (first != fits_->ranks() - 1) {
    const std::optional<Run> run = RunFrom(first, machines, most_seconds);
    PACELINE_CHECK(run.has_value(),
                   absl::StrCat("no run from state ", first, " on ", machines,
                                " machines in ", most_seconds, " s"));
    runs.push_back(*run);
    first = run->last;
    machines = run->rest;
  }
  return runs;
}

// Returns 0 if no total is possible.
int PipedreamLevels::TotalOf(Total which) const {
  int total = 0;
  for (int machines = options_.machines; machines > 0; --machines) {
    if (!Has(&reach_[machines * fits_->words()], 0)) continue;
    if (which == Total::kMost) return machines;
    total = machines;
  }
  return total;
}

std::optional<PipedreamLevels::Plan> PipedreamLevels::PlanWithin(
    double most_seconds, Total which) {
  if (!fits_->Solve(most_seconds)) return std::nullopt;
  for (;;) {
    Reach(most_seconds);
    const int total = TotalOf(which);
    if (total == 0) return std::nullopt;
    Plan plan{0, Path(total, most_seconds)};
    for (const Run& run : plan.runs) {
      plan.seconds = std::max(plan.seconds, ExactSeconds(run, most_seconds));
      if (plan.seconds == HUGE_VAL) break;
    }
    if (plan.seconds <= most_seconds) return plan;
  }
}

// Returns the time to try first: the least time that few of the states allow,
// then that of some more, which is cheap to compute.
double PipedreamLevels::Guess(double least_seconds) const {
  constexpr int kFewStates = 200;
  constexpr int kSomeStates = 450;
  const double most = MostSeconds();
  if (!(least_seconds > 0)) return most;
  double guess = least_seconds;
  int step_before = 1;
  for (const int states : {kFewStates, kSomeStates}) {
    const int step = (space_.states + states - 1) / states;
    if (step == 1 || step == step_before) break;
    step_before = step;
    PipedreamFits some(space_, options_, step);
    guess = LeastAllowed(some, {least_seconds, guess, most});
  }
  return guess;
}

// With few states stages are large, and do not fit beside many versions.
bool PipedreamLevels::GuessIsRough() const {
  constexpr int kManyDevices = 256;
  return options_.row.memory_bytes > 0 &&
         options_.machines * options_.row.devices > kManyDevices;
}

PipedreamLevels::Plan PipedreamLevels::CloseIn(double least_seconds) {
  const double most = MostSeconds();
  Plan best{HUGE_VAL, {}};
  double below = least_seconds;
  // Halving would never end at 0.
  if (least_seconds == 0) {
    std::optional<Plan> plan = PlanWithin(0, Total::kFewest);
    if (plan.has_value()) return *std::move(plan);
  }
  const double guess = Guess(least_seconds);
  // If the guess is far too high, half of it takes much less time to check.
  const bool halves =
      GuessIsRough() && guess < most && least_seconds < guess / 2;
  double next = halves ? guess / 2 : guess;
  double step = 0.02;
  for (;;) {
    std::optional<Plan> plan = PlanWithin(next, Total::kFewest);
    if (plan.has_value()) {
      best = *std::move(plan);
      fits_->Narrow();
      break;
    }
    if (next >= most) return best;
    below = next;
    if (next < guess) {
      next = guess;
      continue;
    }
    next = std::min(most, next * (1 + step));
    step = std::min(2 * step, 1.0);
  }
  // Go down in growing steps, since times close to the best known one leave few
  // runs.  Where a step fails, check whether the best known plan is optimal,
  // which it often is; if not, bisect.
  constexpr double kClose = 1 + 1e-3;
  step = best.seconds < guess / 2 ? 0.2 : 0.02;
  bool is_it_best = false;
  while (best.seconds > least_seconds) {
    is_it_best = is_it_best || best.seconds <= below * kClose;
    next = is_it_best ? best.seconds * (1 - kRounding)
                      : std::max(best.seconds * (1 - step),
                                 std::sqrt(below * best.seconds));
    std::optional<Plan> plan = PlanWithin(next, Total::kFewest);
    if (plan.has_value()) {
      best = *std::move(plan);
      fits_->Narrow();
      step = std::min(2 * step, 0.5);
    } else if (is_it_best) {
      break;
    } else {
      below = next;
    }
    is_it_best = !plan.has_value();
  }
  return best;
}

std::vector<PipedreamRun> PipedreamLevels::RunsOf(const Plan& plan) {
  std::vector<PipedreamRun> runs;
  for (const Run& run : plan.runs) {
    const int first = fits_->StateOf(run.first);
    const int last = fits_->StateOf(run.last);
    row_.Solve(last, {1, Later(run.rest, run.machines)},
               plan.seconds * run.machines * (1 + kMargin));
    const double most =
        plan.seconds * run.machines -
        RunSyncSeconds(options_, space_, first, last, run.machines);
    runs.push_back(
        {first, last, run.machines,
         row_.StagesFrom(first, std::max(most, row_.seconds()[first]))});
  }
  return runs;
}

LevelAnswer PipedreamLevels::Solve() {
  if (options_.machines == 1) return SolveOneMachine();
  fits_.emplace(space_, options_);
  // No device is faster than its share of the compute.
  Plan best = CloseIn(space_.seconds[space_.last] /
                      (options_.machines * options_.row.devices));
  if (best.runs.empty()) return {HUGE_VAL, {}};
  int machines = 0;
  for (const Run& run : best.runs) machines += run.machines;
  if (machines < options_.machines) {
    std::optional<Plan> wide = PlanWithin(best.seconds, Total::kMost);
    if (wide.has_value()) best = *std::move(wide);
  }
  return {best.seconds, RunsOf(best)};
}

}  // namespace paceline
