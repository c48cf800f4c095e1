#include "core/plan/pipedream_levels.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace paceline {

double RunSyncSeconds(const LevelOptions& options, const StateSpace& space,
                      int first, int last, int machines) {
  const double bytes =
      space.parameter_bytes[last] - space.parameter_bytes[first];
  const double seconds =
      4.0 * (machines - 1) * bytes / (options.bytes_per_second * machines);
  return first == 0 ? seconds / options.row.devices : seconds;
}

double RunTransferSeconds(const LevelOptions& options, const StateSpace& space,
                          int state) {
  if (!options.row.count_transfers || state == space.last) return 0;
  return 2 * space.boundary_bytes[state] / options.bytes_per_second;
}

double MostHeldBytes(double memory_bytes, int later_devices, int devices) {
  double bytes = 0;
  for (int i = 0; i < devices; ++i)
    bytes += memory_bytes / (1 + later_devices + i);
  return bytes;
}

PipedreamLevels::PipedreamLevels(const StateSpace& space,
                                 const LevelOptions& options)
    : space_(space),
      options_(options),
      row_(space, options.row),
      transfer_(space.states),
      best_(At(options.machines + 1, 0)),
      next_(best_.size()) {
  for (int s = 0; s < space.states; ++s) {
    transfer_[s] = RunTransferSeconds(options, space, s);
  }
  for (int machines = 0; machines <= options.machines; ++machines) {
    held_.push_back(MostHeldBytes(options.row.memory_bytes, 0,
                                  machines * options.row.devices));
  }
}

// Rows depend on what comes after them only where memory is bounded, and then
// only on the devices after each machine, rounded up: replicas and devices of
// the row are whole numbers (see VersionsOf).  So few rows are solved for many
// splits.
RowPlace PipedreamLevels::PlaceOf(const Split& split) const {
  if (options_.row.memory_bytes == 0) return {};
  const int later = split.rest * options_.row.devices;
  return {1, (later + split.machines - 1) / split.machines};
}

// No device is faster than its share of the compute: of the run, and of what
// is before it.
bool PipedreamLevels::CouldBeFaster(int last, const Split& split) const {
  const double pace = below_seconds_ * options_.row.devices;
  const int before = options_.machines - split.rest - split.machines;
  const double from = space_.seconds[last] - pace * split.machines;
  return from < 0 || from < pace * before;
}

bool PipedreamLevels::CouldFit(int last, const Split& split) const {
  constexpr double kRounding = 1e-12;
  if (options_.row.memory_bytes == 0) return true;
  const double bytes = space_.output_bytes[last] + space_.parameter_bytes[last];
  return bytes <=
         (held_[options_.machines] - held_[split.rest]) * (1 + kRounding);
}

std::vector<PipedreamLevels::Split> PipedreamLevels::SplitsAt(int last) const {
  std::vector<Split> splits;
  const int all = options_.machines;
  for (int rest = 0; rest < all; ++rest) {
    if ((last == space_.last) != (rest == 0)) continue;
    if (best_[At(rest, last)] >= below_seconds_) continue;
    const int most = options_.row.replicas ? all - rest : 1;
    for (int machines = 1; machines <= most; ++machines) {
      const Split split{rest, machines};
      if (CouldBeFaster(last, split) && CouldFit(last, split)) {
        splits.push_back(split);
      }
    }
  }
  return splits;
}

void PipedreamLevels::Extend(int last, const Split& split) {
  const int m = split.machines;
  const double behind =
      std::max(best_[At(split.rest, last)], transfer_[last] / m);
  const double share = 1.0 / m;
  const double factor = 4.0 * (m - 1) / (options_.bytes_per_second * m);
  const std::vector<double>& row = row_.seconds();
  const double* const parameters = space_.parameter_bytes.data();
  const int total = split.rest + m;
  double* const best = &best_[At(total, 0)];
  Next* const next = &next_[At(total, 0)];
  for (int c = 0; c < space_.chains(); ++c) {
    const int end = space_.InsideEnd(last, c);
    for (int s = std::max(1, space_.chain_begin[c]); s < end; ++s) {
      const double run = row[s] + factor * (parameters[last] - parameters[s]);
      const double seconds =
          std::max({run * share, transfer_[s] * share, behind});
      if (seconds >= best[s]) continue;
      best[s] = seconds;
      next[s] = {last, m};
    }
  }
  const double sync = RunSyncSeconds(options_, space_, 0, last, m);
  const double seconds =
      std::max((row[0] + sync) * share, best_[At(split.rest, last)]);
  if (seconds >= best[0]) return;
  best[0] = seconds;
  next[0] = {last, m};
}

void PipedreamLevels::SolveAt(int last) {
  std::map<int, std::vector<Split>> by_later;
  for (const Split& split : SplitsAt(last)) {
    by_later[PlaceOf(split).later_devices].push_back(split);
  }
  for (const auto& [later_devices, splits] : by_later) {
    row_.Solve(last, {1, later_devices});
    for (const Split& split : splits) Extend(last, split);
  }
}

void PipedreamLevels::SolveEvery(int step) {
  std::fill(best_.begin(), best_.end(), HUGE_VAL);
  best_[At(0, space_.last)] = 0;
  // From the end: what is behind a state is known before what ends there.
  for (int i = space_.states - 1; i > 0; --i) {
    if ((space_.states - 1 - i) % step == 0) SolveAt(space_.in_order[i]);
  }
}

int PipedreamLevels::BestTotal() const {
  int best = options_.machines;
  for (int total = best - 1; total > 0; --total) {
    if (best_[At(total, 0)] < best_[At(best, 0)]) best = total;
  }
  return best;
}

std::vector<PipedreamRun> PipedreamLevels::RunsFrom(int machines,
                                                    double seconds) {
  std::vector<PipedreamRun> runs;
  int state = 0;
  while (state != space_.last) {
    const Next next = next_[At(machines, state)];
    machines -= next.machines;
    row_.Solve(next.state, PlaceOf({machines, next.machines}));
    const double most =
        seconds * next.machines -
        RunSyncSeconds(options_, space_, state, next.state, next.machines);
    runs.push_back(
        {state, next.state, next.machines,
         row_.StagesFrom(state, std::max(most, row_.seconds()[state]))});
    state = next.state;
  }
  return runs;
}

LevelAnswer PipedreamLevels::Solve() {
  constexpr int kFewStates = 48;
  LevelAnswer answer{HUGE_VAL, {}};
  below_seconds_ = HUGE_VAL;
  std::vector<int> steps = {1};
  // A plan from few states first: what cannot be better is not looked at.
  const int few = space_.states / kFewStates;
  if (options_.machines > 1 && few > 1) steps.insert(steps.begin(), few);
  for (const int step : steps) {
    SolveEvery(step);
    const int total = BestTotal();
    const double seconds = best_[At(total, 0)];
    if (seconds >= below_seconds_) continue;
    below_seconds_ = seconds;
    answer = {seconds, RunsFrom(total, seconds)};
  }
  return answer;
}

}  // namespace paceline
