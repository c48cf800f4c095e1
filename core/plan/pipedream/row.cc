#include "core/plan/pipedream/row.h"

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {
namespace {

// Index of the first kept cut; sentinels stand before it and behind the last
// one.
constexpr int kFirstKept = 1;

}  // namespace

int64_t VersionsOf(const RowPlace& place, int replicas, int rest_devices) {
  const int64_t own = int64_t{place.machines} * replicas;
  const int64_t after =
      int64_t{place.machines} * rest_devices + place.later_devices;
  return (after + own - 1) / own + 1;
}

PipedreamRow::PipedreamRow(const StateSpace& space, const RowOptions& options)
    : space_(space),
      options_(options),
      transfer_(space.states, 0.0),
      bytes_(space.states),
      rest_(static_cast<size_t>(options.devices) * space.states),
      seconds_(space.states),
      replicas_(options.devices + 1),
      kept_(space.states + 2) {
  kept_[0] = kBeforeKept;
  for (int m = 1; m <= options.devices; ++m) {
    replicas_[m].share = 1.0 / m;
    replicas_[m].sync = 4.0 * (m - 1) / (options.bytes_per_second * m) / m;
  }
  for (int s = 0; s < space.states; ++s) {
    bytes_[s] = space.output_bytes[s] + space.parameter_bytes[s];
    if (!options.count_transfers || s == space.last) continue;
    transfer_[s] = 2 * space.boundary_bytes[s] / options.bytes_per_second;
  }
}

double PipedreamRow::Seconds(const RowStage& stage, bool is_first) const {
  const Replicas& replicas = replicas_[stage.replicas];
  if (options_.memory_bytes > 0 &&
      bytes_[stage.last] - bytes_[stage.first] >
          options_.memory_bytes /
              static_cast<double>(
                  VersionsOf(place_, stage.replicas, stage.rest_devices))) {
    return HUGE_VAL;
  }
  const double seconds =
      (space_.seconds[stage.last] - space_.seconds[stage.first]) *
          replicas.share +
      (space_.parameter_bytes[stage.last] -
       space_.parameter_bytes[stage.first]) *
          replicas.sync;
  if (is_first) return seconds;
  return std::max({seconds, transfer_[stage.first] * replicas.share,
                   transfer_[stage.last] * replicas.share});
}

void PipedreamRow::TakeWhole(int replicas) {
  for (int c = 0; c < space_.chains(); ++c) {
    const int end = space_.InsideEnd(last_, c);
    for (int s = begin_[c]; s < end; ++s) {
      const RowStage stage{s, last_, replicas, 0};
      seconds_[s] = std::min(seconds_[s], Seconds(stage, /*is_first=*/true));
      if (replicas == options_.devices) continue;
      double& rest = Rest(replicas)[s];
      rest = std::min(rest, Seconds(stage, /*is_first=*/false));
    }
  }
}

void PipedreamRow::TakeSplits(int rest_devices) {
  const int all = options_.devices;
  const int most = MostReplicas(all - rest_devices);
  const bool bounded = options_.memory_bytes > 0;
  for (int m = 1; m <= most; ++m) {
    replicas_[m].most_bytes =
        bounded ? options_.memory_bytes /
                      static_cast<double>(VersionsOf(place_, m, rest_devices))
                : HUGE_VAL;
  }
  if (!options_.count_transfers) {
    TakeAll({rest_devices, 1, most, true, true});
    return;
  }
  // A later stage also waits for the bytes it sends, the longer the fewer
  // replicas it has, so each number of replicas needs a pass.
  for (int m = 1; m <= MostReplicas(all - rest_devices - 1); ++m) {
    TakeAll({rest_devices, m, m, false, true});
  }
  // Without a memory bound more devices behind are never worse.
  const bool some = bounded || !options_.replicas;
  TakeAll({rest_devices, some ? 1 : most, most, true, false});
}

void PipedreamRow::TakeAll(const Pass& pass) {
  for (int a = 0; a < space_.chains(); ++a) {
    for (int k = 0; k < space_.chains(); ++k) TakeSplitsOf(a, k, pass);
  }
}

// Keeps cuts so that the time behind them rises and the time of the stage
// before them falls.  A kept cut with a larger stage and no less time behind it
// than the newest cut is never needed again.
void PipedreamRow::Keep(int cut, double behind_seconds, const Pass& pass) {
  const int before = end_;
  while (kept_[end_ - 1].behind_seconds >= behind_seconds) --end_;
  if (end_ < before) {
    for (int m = pass.least; m <= pass.most; ++m) {
      // Cuts from end_ on are new, so they must be compared again.
      replicas_[m].cross = std::min(replicas_[m].cross, end_);
      replicas_[m].fits = std::min(replicas_[m].fits, end_);
    }
  }
  kept_[end_++] = {behind_seconds, space_.seconds[cut],
                   space_.parameter_bytes[cut], bytes_[cut]};
  kept_[end_] = kAfterKept;
}

// The least of max(behind, stage) over the kept cuts is where the two cross, or
// at the first cut after that whose stage fits.  As `first` goes down stages
// only grow, so both positions move one way.  They may stay where they were
// while neither cut beside the crossing is better than the best known time,
// which is usual when branches give many chains.  This function takes most of
// the search's time.
void PipedreamRow::TakeBestCuts(int first, const Pass& pass) {
  const Kept* const kept = kept_.data();
  const double compute = space_.seconds[first];
  const double parameters = space_.parameter_bytes[first];
  for (int m = pass.least; m <= pass.most; ++m) {
    Replicas& replicas = replicas_[m];
    const auto stage = [&](const Kept& cut) {
      return (cut.compute_seconds - compute) * replicas.share +
             (cut.parameter_bytes - parameters) * replicas.sync;
    };
    const int used = m + pass.rest_devices;
    double* const rest =
        pass.as_rest && used < options_.devices ? &Rest(used)[first] : nullptr;
    // seconds_ is never more than rest_ of the same state.
    const double best = rest != nullptr ? *rest : seconds_[first];
    int cross = replicas.cross;
    if (stage(kept[cross - 1]) >= best && kept[cross].behind_seconds >= best) {
      continue;
    }
    while (kept[cross].behind_seconds < stage(kept[cross])) ++cross;
    replicas.cross = cross;
    int& fits = replicas.fits;
    while (kept[fits].bytes - bytes_[first] > replicas.most_bytes) ++fits;
    double seconds = kept[std::max(cross, fits)].behind_seconds;
    if (cross > fits) seconds = std::min(seconds, stage(kept[cross - 1]));
    if (pass.as_first) seconds_[first] = std::min(seconds_[first], seconds);
    if (rest == nullptr) continue;
    *rest =
        std::min(*rest, std::max(seconds, transfer_[first] * replicas.share));
  }
}

// Finds for each state of one chain, from the top, the best cut in another
// chain.
void PipedreamRow::TakeSplitsOf(int first_chain, int cut_chain,
                                const Pass& pass) {
  const int begin = begin_[first_chain];
  int next = space_.InsideEnd(last_, cut_chain);
  if (begin >= space_.InsideEnd(last_, first_chain)) return;
  if (space_.AroundBegin(begin, cut_chain) >= next) return;
  const double* const rest = Rest(pass.rest_devices);
  end_ = kFirstKept;
  kept_[end_] = kAfterKept;
  for (int m = pass.least; m <= pass.most; ++m) {
    replicas_[m].cross = kFirstKept;
    replicas_[m].fits = kFirstKept;
  }
  for (int a = space_.InsideEnd(last_, first_chain) - 1; a >= begin; --a) {
    const int stop = space_.AroundBegin(a, cut_chain);
    while (next > stop) {
      --next;
      if (rest[next] > most_seconds_ || rest[next] == HUGE_VAL) continue;
      const double sent =
          pass.as_first ? 0 : transfer_[next] * replicas_[pass.least].share;
      Keep(next, std::max(rest[next], sent), pass);
    }
    if (end_ == kFirstKept) continue;
    TakeBestCuts(a, pass);
  }
}

// Leaves out states so far from last_ that the devices cannot compute the
// states between within most_seconds_.
void PipedreamRow::LeaveOutFar() {
  constexpr double kRounding = 1e-9;
  const double least = space_.seconds[last_] -
                       options_.devices * most_seconds_ * (1 + kRounding);
  begin_.clear();
  for (int c = 0; c < space_.chains(); ++c) {
    const auto chain = space_.seconds.begin() + space_.chain_begin[c];
    const auto end = space_.seconds.begin() + space_.chain_begin[c + 1];
    begin_.push_back(static_cast<int>(std::lower_bound(chain, end, least) -
                                      space_.seconds.begin()));
  }
}

void PipedreamRow::Solve(int last, const RowPlace& place, double most_seconds) {
  last_ = last;
  place_ = place;
  most_seconds_ = most_seconds;
  LeaveOutFar();
  std::fill(rest_.begin(), rest_.end(), HUGE_VAL);
  std::fill(seconds_.begin(), seconds_.end(), HUGE_VAL);
  for (int m = 1; m <= MostReplicas(options_.devices); ++m) TakeWhole(m);
  for (int devices = 1; devices < options_.devices; ++devices) {
    if (devices > 1) {
      for (int s = 0; s < space_.states; ++s) {
        Rest(devices)[s] = std::min(Rest(devices)[s], Rest(devices - 1)[s]);
      }
    }
    TakeSplits(devices);
  }
}

bool PipedreamRow::Fits(const RowStage& stage, bool is_first,
                        double most_seconds) const {
  return Seconds(stage, is_first) <= most_seconds &&
         (stage.last == last_ ||
          Rest(stage.rest_devices)[stage.last] <= most_seconds);
}

// Returns the largest stage that begins at `first` and fits; of equal ones the
// one with the fewest replicas.
RowStage PipedreamRow::Largest(int first, int devices, bool is_first,
                               double most_seconds) const {
  RowStage largest{first, -1, 0, 0};
  for (int m = 1; m <= MostReplicas(devices); ++m) {
    const RowStage whole{first, last_, m, 0};
    if (Fits(whole, is_first, most_seconds)) return whole;
  }
  const auto is_larger = [&](int state) {
    return largest.last == -1 ||
           space_.seconds[state] > space_.seconds[largest.last];
  };
  for (int m = 1; m <= MostReplicas(devices - 1); ++m) {
    // Fewer devices behind a stage can be better for it only with a memory
    // bound.
    const int least = options_.memory_bytes > 0 ? 1 : devices - m;
    for (int rest = devices - m; rest >= least; --rest) {
      for (int c = 0; c < space_.chains(); ++c) {
        const int end = space_.InsideEnd(last_, c);
        for (int k = space_.AroundBegin(first, c); k < end; ++k) {
          const RowStage stage{first, k, m, rest};
          if (is_larger(k) && Fits(stage, is_first, most_seconds)) {
            largest = stage;
          }
        }
      }
    }
  }
  return largest;
}

// Gives one more replica to the slowest stage that can take it: no stage may
// then take more time than `most_seconds` or too much memory.  False: no stage
// can.
bool PipedreamRow::Grow(std::vector<RowStage>& stages,
                        double most_seconds) const {
  std::vector<RowStage> best;
  double slowest = -1;
  for (size_t i = 0; i < stages.size(); ++i) {
    const double now = Seconds(stages[i], i == 0);
    std::vector<RowStage> grown = stages;
    ++grown[i].replicas;
    for (size_t j = 0; j < i; ++j) ++grown[j].rest_devices;
    bool fits = now > slowest;
    for (size_t j = 0; j <= i && fits; ++j) {
      fits = Seconds(grown[j], j == 0) <= most_seconds;
    }
    if (!fits) continue;
    slowest = now;
    best = std::move(grown);
  }
  if (best.empty()) return false;
  stages = std::move(best);
  return true;
}

std::vector<RowStage> PipedreamRow::StagesFrom(int first,
                                               double most_seconds) const {
  // The running sums of the search round differently.
  const double most = most_seconds * (1 + 1e-13);
  std::vector<RowStage> stages;
  int devices = options_.devices;
  for (int from = first; from != last_; from = stages.back().last) {
    stages.push_back(Largest(from, devices, stages.empty(), most));
    PACELINE_CHECK(stages.back().last != -1,
                   absl::StrCat("no stage from state ", from, " to ", last_,
                                " on ", devices, " devices in ", most, " s"));
    devices = stages.back().rest_devices;
  }
  // So far rest_devices is a budget; set it to the devices used.
  int after = 0;
  for (size_t i = stages.size(); i-- > 0;) {
    stages[i].rest_devices = after;
    after += stages[i].replicas;
  }
  while (options_.replicas && after < options_.devices && Grow(stages, most)) {
    ++after;
  }
  return stages;
}

// --- A row on each of several machines ---

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

int LaterDevices(const LevelOptions& options, int rest_machines, int machines) {
  // without a bound versions do not count
  if (options.row.memory_bytes == 0) return 0;
  const int later = rest_machines * options.row.devices;
  return (later + machines - 1) / machines;
}

double MostHeldBytes(double memory_bytes, int later_devices, int devices) {
  double bytes = 0;
  for (int i = 0; i < devices; ++i)
    bytes += memory_bytes / (1 + later_devices + i);
  return bytes;
}

}  // namespace paceline
