#include "core/plan/pipedream/levels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {
namespace {

// Sums of many numbers are off by so much: no better plan is looked for.
constexpr double kRounding = 1e-13;
// A row is solved for so much more than is asked, so that no rounding of its
// seconds makes a difference.
constexpr double kMargin = 1e-12;
// Of bounds that are other sums than what they bound.
constexpr double kSlack = 1e-9;

// A row on each of `machines` has `rest_machines` after it: in devices a
// machine, rounded up.  Replicas and devices of the row are whole numbers, so
// that no more counts for VersionsOf().
int LaterDevices(const LevelOptions& options, int rest_machines, int machines) {
  if (options.row.memory_bytes == 0) return 0;  // nothing depends on it
  const int later = rest_machines * options.row.devices;
  return (later + machines - 1) / machines;
}

// No plan takes longer, whatever it does.
double MostSeconds(const StateSpace& space, const LevelOptions& options) {
  const double parameters = space.parameter_bytes[space.last];
  double seconds = space.seconds[space.last] +
                   4 * parameters / options.row.bytes_per_second +
                   4 * parameters / options.bytes_per_second;
  if (!options.row.count_transfers) return seconds;
  const double bandwidth =
      std::min(options.row.bytes_per_second, options.bytes_per_second);
  for (const double bytes : space.boundary_bytes) {
    seconds = std::max(seconds, 2 * bytes / bandwidth);
  }
  return seconds;
}

// The first of the kept cuts; before it and behind the last stand sentinels.
constexpr int kFirstKept = 1;

// One level: the best stages between two states on devices that are all alike.
// Thread-compatible; keeps its arrays between calls.
class Row {
 public:
  // `space` outlives the row.
  Row(const StateSpace& space, const RowOptions& options)
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

  // Answers for every state inside `last` from begin[chain] on: as many of the
  // devices are used as is best.  What takes longer than `most_seconds` is not
  // looked for.
  //   begin  [chains]; a state around one that is looked at is so too
  // O(devices^2 x chains x states that are looked at).
  void Solve(int last, const RowPlace& place, double most_seconds,
             std::vector<int> begin) {
    last_ = last;
    place_ = place;
    most_seconds_ = most_seconds;
    begin_ = std::move(begin);
    // Of the states that are looked at; there are many more as a rule.
    const auto for_all = [&](const auto& change) {
      for (int c = 0; c < space_.chains(); ++c) {
        const int end = space_.InsideEnd(last_, c);
        for (int s = begin_[c]; s < end; ++s) change(s);
      }
    };
    for (int devices = 0; devices < options_.devices; ++devices) {
      for_all([&](int s) { Rest(devices)[s] = HUGE_VAL; });
    }
    for_all([&](int s) { seconds_[s] = HUGE_VAL; });
    for (int m = 1; m <= MostReplicas(options_.devices); ++m) TakeWhole(m);
    for (int devices = 1; devices < options_.devices; ++devices) {
      if (devices > 1) {
        for_all([&](int s) {
          Rest(devices)[s] = std::min(Rest(devices)[s], Rest(devices - 1)[s]);
        });
      }
      TakeSplits(devices);
    }
  }

  // [states]: seconds of (state, last]; infinite where no stages fit, and more
  // than `most_seconds` where that is not enough.  Valid for the states that
  // the last Solve() looked at.
  const std::vector<double>& seconds() const { return seconds_; }

  // Stages of (first, last], in order, none of which takes more than
  // `most_seconds`, which is no less than the answer for `first`.  Each is as
  // large as that allows, which keeps them few; devices that are left become
  // replicas where they do no harm.
  std::vector<RowStage> StagesFrom(int first, double most_seconds) const {
    // Sums that the search keeps round differently.
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
    // From budgets to the devices that are there.
    int after = 0;
    for (size_t i = stages.size(); i-- > 0;) {
      stages[i].rest_devices = after;
      after += stages[i].replicas;
    }
    while (options_.replicas && after < options_.devices &&
           Grow(stages, most)) {
      ++after;
    }
    return stages;
  }

 private:
  // A cut that may still be the best one.
  struct Kept {
    double behind_seconds;
    double compute_seconds;
    double parameter_bytes;
    double bytes;
  };
  // Sentinels: no stage reaches the one before the kept cuts, and nothing lies
  // behind the one after them, which always fits.
  static constexpr Kept kBeforeKept = {-HUGE_VAL, HUGE_VAL, 0, 0};
  static constexpr Kept kAfterKept = {HUGE_VAL, 0, 0, -HUGE_VAL};
  // Of one number of replicas: a stage takes compute x share + parameters x
  // sync.
  struct Replicas {
    double share = 0;
    double sync = 0;
    double most_bytes = 0;
    int cross = 0;  // the first kept cut whose rest is not below its stage
    int fits = 0;   // the first kept cut whose stage fits
  };

  // One pass over two chains: stages on `least` to `most` devices, with so many
  // behind them; what they are counted for.
  struct Pass {
    int rest_devices = 0;
    int least = 1;
    int most = 0;
    bool as_first = true;  // the row begins with the stage
    bool as_rest = true;   // it does not
  };

  double* Rest(int devices) {
    return &rest_[static_cast<size_t>(devices) * space_.states];
  }
  const double* Rest(int devices) const {
    return &rest_[static_cast<size_t>(devices) * space_.states];
  }
  bool IsBounded() const { return options_.memory_bytes > 0; }
  int MostReplicas(int devices) const {
    return options_.replicas ? devices : std::min(devices, 1);
  }

  double Seconds(const RowStage& stage, bool is_first) const {
    const Replicas& replicas = replicas_[stage.replicas];
    if (IsBounded() &&
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

  void TakeWhole(int replicas) {
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

  void TakeSplits(int rest_devices) {
    const int all = options_.devices;
    const int most = MostReplicas(all - rest_devices);
    for (int m = 1; m <= most; ++m) {
      replicas_[m].most_bytes =
          IsBounded()
              ? options_.memory_bytes /
                    static_cast<double>(VersionsOf(place_, m, rest_devices))
              : HUGE_VAL;
    }
    if (!options_.count_transfers) {
      TakeAll({rest_devices, 1, most, true, true});
      return;
    }
    // What a stage that is not the first sends counts, and takes as long as it
    // has few replicas: these need a pass each.
    for (int m = 1; m <= MostReplicas(all - rest_devices - 1); ++m) {
      TakeAll({rest_devices, m, m, false, true});
    }
    // Without a bound what lies behind is never worse for more devices there.
    const bool some = IsBounded() || !options_.replicas;
    TakeAll({rest_devices, some ? 1 : most, most, true, false});
  }

  void TakeAll(const Pass& pass) {
    for (int a = 0; a < space_.chains(); ++a) {
      for (int k = 0; k < space_.chains(); ++k) TakeSplitsOf(a, k, pass);
    }
  }

  // For each state of one chain, from the top, the best cut in another.
  void TakeSplitsOf(int first_chain, int cut_chain, const Pass& pass) {
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

  // Cuts are kept such that what lies behind them rises and the stage before
  // them falls; one with a larger stage and no less behind it than the newest
  // is never needed again.
  void Keep(int cut, double behind_seconds, const Pass& pass) {
    const int before = end_;
    while (kept_[end_ - 1].behind_seconds >= behind_seconds) --end_;
    if (end_ < before) {
      for (int m = pass.least; m <= pass.most; ++m) {
        // What is new there has not been looked at.
        replicas_[m].cross = std::min(replicas_[m].cross, end_);
        replicas_[m].fits = std::min(replicas_[m].fits, end_);
      }
    }
    kept_[end_++] = {behind_seconds, space_.seconds[cut],
                     space_.parameter_bytes[cut], bytes_[cut]};
    kept_[end_] = kAfterKept;
  }

  // The least of max(behind, stage) over the kept cuts is where the two cross.
  // As `first` goes down stages only grow, so the crossing moves one way, and
  // may be left where it was as long as no cut on either side of it is better
  // than what is known: as a rule, when branches give many chains.  Here the
  // time goes. Where memory is bounded only cuts count whose stage fits, which
  // begin ever later too.
  void TakeBestCuts(int first, const Pass& pass) {
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
      double* const rest = pass.as_rest && used < options_.devices
                               ? &Rest(used)[first]
                               : nullptr;
      // What begins a row has all devices: more behind it are never worse, but
      // for memory, since fewer devices behind a stage are fewer versions in
      // it.
      double* const whole = pass.as_first && (rest == nullptr || IsBounded())
                                ? &seconds_[first]
                                : nullptr;
      // What takes more than most_seconds_ is not looked for.
      const double known = std::min(
          most_seconds_,
          std::max(rest == nullptr ? 0 : *rest, whole == nullptr ? 0 : *whole));
      int& cross = replicas.cross;
      if (stage(kept[cross - 1]) >= known &&
          kept[cross].behind_seconds >= known) {
        continue;
      }
      while (kept[cross].behind_seconds < stage(kept[cross])) ++cross;
      int& fits = replicas.fits;
      while (kept[fits].bytes - bytes_[first] > replicas.most_bytes) ++fits;
      double seconds = kept[std::max(cross, fits)].behind_seconds;
      if (cross > fits) seconds = std::min(seconds, stage(kept[cross - 1]));
      if (whole != nullptr) *whole = std::min(*whole, seconds);
      if (rest == nullptr) continue;
      *rest =
          std::min(*rest, std::max(seconds, transfer_[first] * replicas.share));
    }
  }

  bool Fits(const RowStage& stage, bool is_first, double most_seconds) const {
    return Seconds(stage, is_first) <= most_seconds &&
           (stage.last == last_ ||
            Rest(stage.rest_devices)[stage.last] <= most_seconds);
  }

  // Of the stages that begin at `first` and fit, the largest; of several that
  // with the fewest replicas.
  RowStage Largest(int first, int devices, bool is_first,
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
      // Only with a bound fewer devices behind a stage can be better for it.
      const int least = IsBounded() ? 1 : devices - m;
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

  // Gives one stage a replica more where no stage then takes too long or too
  // much memory: the slowest that can have it.
  bool Grow(std::vector<RowStage>& stages, double most_seconds) const {
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

  const StateSpace& space_;
  const RowOptions options_;
  std::vector<double> transfer_;  // [states]: 2 x / B
  std::vector<double> bytes_;     // [states]: outputs and parameters
  int last_ = 0;
  RowPlace place_;
  double most_seconds_ = HUGE_VAL;
  std::vector<int> begin_;  // [chains]: the first state that is looked at
  // [devices, states]: of (state, last] on at most so many devices, where it
  // is not what the row begins with.
  std::vector<double> rest_;
  std::vector<double> seconds_;
  // Scratch of TakeSplits.
  std::vector<Replicas> replicas_;  // [devices + 1]
  std::vector<Kept> kept_;          // [states + 2]
  int end_ = 0;                     // of those that are kept
};

// [chains]
std::vector<int> AllFirsts(const StateSpace& space) {
  return {space.chain_begin.begin(), space.chain_begin.end() - 1};
}

class Levels {
 public:
  Levels(const StateSpace& space, const LevelOptions& options)
      : space_(space), options_(options), row_(space, options.row) {
    for (int rest = 0; rest < options.machines; ++rest) {
      const int later = rest * options.row.devices;
      held_bytes_.push_back(
          options.row.memory_bytes == 0
              ? HUGE_VAL
              : MostHeldBytes(options.row.memory_bytes, later,
                              options.machines * options.row.devices - later));
    }
  }

  LevelAnswer Solve() {
    const double least = space_.seconds[space_.last] /
                         (options_.machines * options_.row.devices);
    const double most = MostSeconds(space_, options_);
    double limit = least * (1 + kFirstStep);
    double seconds = Fill(limit, Keep::kFewestMachines);
    for (double step = kFirstStep; seconds == HUGE_VAL && limit < most;
         step = std::min(2 * step, kLargestStep)) {
      limit = limit > 0 ? std::min(limit * (1 + step), most) : most;
      seconds = Fill(limit, Keep::kFewestMachines);
    }
    if (seconds == HUGE_VAL) return {HUGE_VAL, {}};
    if (MachinesFor(seconds) < options_.machines) {
      Fill(seconds * (1 + kRounding), Keep::kAll);
    }
    return {seconds, RunsWithin(seconds * (1 + kRounding))};
  }

 private:
  static constexpr double kFirstStep = 0.05;
  static constexpr double kLargestStep = 0.4;

  // Which entries of a state are gone on from: those that are better than all
  // on fewer machines, or all.
  enum class Keep { kFewestMachines, kAll };

  // The states from one on: their seconds and their first run.
  struct Entry {
    double seconds = HUGE_VAL;
    int last = 0;
    int machines = 0;
  };
  struct Use {  // of a row
    int machines;
    int rest;
  };

  Entry& At(int rest, int state) {
    return entries_[static_cast<size_t>(rest) * space_.states + state];
  }

  double BytesBefore(int state) const {
    return space_.output_bytes[state] + space_.parameter_bytes[state];
  }

  // Fills the entries of all that takes at most `limit`; returns the least
  // seconds of the whole.
  double Fill(double limit, Keep keep) {
    entries_.assign(static_cast<size_t>(options_.machines + 1) * space_.states,
                    {});
    At(0, space_.last).seconds = 0;
    for (int i = space_.states - 1; i > 0; --i) {
      const int last = space_.in_order[i];
      for (const auto& [later, uses] : UsesOf(last, limit, keep)) {
        PutRuns(last, later, uses, limit);
      }
    }
    double least = HUGE_VAL;
    for (int all = 1; all <= options_.machines; ++all) {
      least = std::min(least, At(all, 0).seconds);
    }
    return least;
  }

  // Runs that may end at `last`, by the devices after them.
  std::map<int, std::vector<Use>> UsesOf(int last, double limit, Keep keep) {
    std::map<int, std::vector<Use>> uses;
    double least = HUGE_VAL;
    for (int rest = 0; rest < options_.machines; ++rest) {
      const double seconds = At(rest, last).seconds;
      if (seconds > limit) continue;
      if (keep == Keep::kFewestMachines && seconds >= least) continue;
      least = seconds;
      const int free = options_.machines - rest;
      // What comes before needs room and time too.
      if (BytesBefore(last) > held_bytes_[rest] * (1 + kMargin) ||
          space_.seconds[last] >
              free * options_.row.devices * limit * (1 + kMargin)) {
        continue;
      }
      for (int m = 1; m <= (options_.row.replicas ? free : 1); ++m) {
        uses[LaterDevices(options_, rest, m)].push_back({m, rest});
      }
    }
    return uses;
  }

  void PutRuns(int last, int later, const std::vector<Use>& uses,
               double limit) {
    int most_machines = 0;
    for (const Use& use : uses) {
      most_machines = std::max(most_machines, use.machines);
    }
    const std::vector<int> begin = FirstsOf(last, later, uses, limit);
    row_.Solve(last, {1, later}, limit * most_machines * (1 + kMargin), begin);
    for (int c = 0; c < space_.chains(); ++c) {
      for (int s = begin[c]; s < space_.InsideEnd(last, c); ++s) {
        if (row_.seconds()[s] == HUGE_VAL) continue;
        for (const Use& use : uses) {
          const double seconds =
              std::max(RunSeconds(s, last, use.machines, row_.seconds()[s]),
                       At(use.rest, last).seconds);
          Entry& entry = At(use.rest + use.machines, s);
          if (seconds > limit || seconds >= entry.seconds) continue;
          entry = {seconds, last, use.machines};
        }
      }
    }
  }

  // [chains]: the first state of each where a run could begin.
  std::vector<int> FirstsOf(int last, int later, const std::vector<Use>& uses,
                            double limit) const {
    const int devices = options_.row.devices;
    const double memory = options_.row.memory_bytes;
    const double most_bytes =
        memory == 0 ? HUGE_VAL : MostHeldBytes(memory, later, devices);
    // Not less than the compute and the synchronisation of (state, last], on
    // machines that have nothing else to do.
    const auto could_be_in = [&](int state, const Use& use) {
      const double compute =
          (space_.seconds[last] - space_.seconds[state]) / devices;
      const double sync =
          RunSyncSeconds(options_, space_, state, last, use.machines);
      return compute + sync <= limit * use.machines * (1 + kSlack);
    };
    const auto is_too_early = [&](int state) {
      if (BytesBefore(last) - BytesBefore(state) > most_bytes * (1 + kSlack)) {
        return true;
      }
      return std::none_of(uses.begin(), uses.end(), [&](const Use& use) {
        // The first run has less to synchronise.
        return could_be_in(state, use) || could_be_in(0, use);
      });
    };
    std::vector<int> begin;
    for (int c = 0; c < space_.chains(); ++c) {
      int least = space_.chain_begin[c];
      int most = std::max(least, space_.InsideEnd(last, c));
      while (least < most) {
        const int middle = least + (most - least) / 2;
        if (is_too_early(middle)) {
          least = middle + 1;
        } else {
          most = middle;
        }
      }
      begin.push_back(least);
    }
    return begin;
  }

  double RunSeconds(int first, int last, int machines,
                    double row_seconds) const {
    const double share = 1.0 / machines;
    const double seconds =
        (row_seconds +
         RunSyncSeconds(options_, space_, first, last, machines)) *
        share;
    if (first == 0) return seconds;
    return std::max({seconds,
                     RunTransferSeconds(options_, space_, first) * share,
                     RunTransferSeconds(options_, space_, last) * share});
  }

  // The most machines on which the whole takes at most `seconds`.
  int MachinesFor(double seconds) {
    int machines = options_.machines;
    while (At(machines, 0).seconds > seconds) --machines;
    return machines;
  }

  std::vector<PipedreamRun> RunsWithin(double seconds) {
    std::vector<PipedreamRun> runs;
    int rest = MachinesFor(seconds);
    for (int first = 0; first != space_.last;) {
      const Entry run = At(rest, first);
      rest -= run.machines;
      row_.Solve(run.last, {1, LaterDevices(options_, rest, run.machines)},
                 seconds * run.machines * (1 + kMargin), AllFirsts(space_));
      const double most =
          seconds * run.machines -
          RunSyncSeconds(options_, space_, first, run.last, run.machines);
      runs.push_back(
          {first, run.last, run.machines,
           row_.StagesFrom(first, std::max(most, row_.seconds()[first]))});
      first = run.last;
    }
    return runs;
  }

  const StateSpace& space_;
  const LevelOptions& options_;
  Row row_;
  std::vector<double> held_bytes_;  // [machines]: before so many machines
  std::vector<Entry> entries_;      // [machines + 1, states]
};

}  // namespace

int64_t VersionsOf(const RowPlace& place, int replicas, int rest_devices) {
  const int64_t own = int64_t{place.machines} * replicas;
  const int64_t after =
      int64_t{place.machines} * rest_devices + place.later_devices;
  return (after + own - 1) / own + 1;
}

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
  for (int i = 0; i < devices; ++i) {
    bytes += memory_bytes / (1 + later_devices + i);
  }
  return bytes;
}

LevelAnswer SolveLevels(const StateSpace& space, const LevelOptions& options) {
  if (options.machines > 1) return Levels(space, options).Solve();
  Row row(space, options.row);
  row.Solve(space.last, {}, HUGE_VAL, AllFirsts(space));
  const double seconds = row.seconds()[0];
  if (seconds == HUGE_VAL) return {HUGE_VAL, {}};
  return {seconds, {{0, space.last, 1, row.StagesFrom(0, seconds)}}};
}

}  // namespace paceline
