#include "core/plan/pipedream/fits.h"

#include <algorithm>
#include <cmath>

#include "core/plan/pipedream/bits.h"

namespace paceline {
namespace {

constexpr int kMostOfByte = 0xFF;
// Relative slack for bounds that are sums of other bounds.
constexpr double kRounding = 1e-9;

// The inner loops.  A stage on `replicas` devices needs that many more than the
// states behind it.  TakeLeastWithin counts it only where devices behind it,
// those of `later` included, are at most `most`.
void TakeLeast(const uint8_t* from, int lanes, uint8_t replicas, uint8_t* to) {
  for (int i = 0; i < lanes; ++i) {
    const uint8_t devices = static_cast<uint8_t>(from[i] + replicas);
    to[i] = devices < to[i] ? devices : to[i];
  }
}

// The loop is written so that the compiler compares many numbers at once, which
// it can where they fit a byte.
void TakeLeastWithin(const uint8_t* from, const uint8_t* later, int most,
                     int lanes, uint8_t replicas, uint8_t* to) {
  const uint8_t above = static_cast<uint8_t>(most + 1);
  for (int i = 0; i < lanes; ++i) {
    const uint8_t top = later[i] < above ? above : later[i];
    const uint8_t room = static_cast<uint8_t>(top - later[i]);
    const uint8_t devices = static_cast<uint8_t>(from[i] + replicas);
    const uint8_t fitting = from[i] < room ? devices : uint8_t{0xFF};
    to[i] = fitting < to[i] ? fitting : to[i];
  }
}

void TakeLeastWithin(const uint8_t* from, const int16_t* later, int most,
                     int lanes, uint8_t replicas, uint8_t* to) {
  for (int i = 0; i < lanes; ++i) {
    if (from[i] + later[i] > most) continue;
    to[i] = std::min(to[i], static_cast<uint8_t>(from[i] + replicas));
  }
}

}  // namespace

PipedreamFits::PipedreamFits(const StateSpace& space,
                             const LevelOptions& options, int step)
    : options_(options),
      most_machines_(options.row.replicas ? options.machines : 1),
      most_replicas_(options.row.replicas ? options.row.devices : 1),
      replicas_(options.row.devices + 1),
      lanes_(most_machines_) {
  for (int m = 1; m <= options.row.devices; ++m) {
    replicas_[m] = {1.0 / m,
                    4.0 * (m - 1) / (options.row.bytes_per_second * m) / m};
  }
  PutStates(space, step);
  PutPairs(space);
  words_ = (ranks() + kBits - 1) / kBits;
  least_.resize(ranks());
  found_.resize(static_cast<size_t>(most_machines_) * ranks() * words_);
  for (int m = 1; m <= most_machines_; ++m) {
    lanes_[m - 1].machines = m;
    lanes_[m - 1].sync = 4.0 * (m - 1) / (options.bytes_per_second * m);
    PutLanes(lanes_[m - 1]);
  }
}

void PipedreamFits::PutStates(const StateSpace& space, int step) {
  for (int i = 0; i < space.states; ++i) {
    if (i % step != 0 && i + 1 < space.states) continue;
    const int s = space.in_order[i];
    State& state = states_.emplace_back();
    state.number = s;
    state.seconds = space.seconds[s];
    state.parameter_bytes = space.parameter_bytes[s];
    state.bytes = space.output_bytes[s] + space.parameter_bytes[s];
    state.far_seconds = RunTransferSeconds(options_, space, s);
    if (!options_.row.count_transfers || s == space.last) continue;
    state.near_seconds =
        2 * space.boundary_bytes[s] / options_.row.bytes_per_second;
  }
}

void PipedreamFits::PutPairs(const StateSpace& space) {
  std::vector<int> rank(space.states, -1);
  for (int r = 0; r < ranks(); ++r) rank[StateOf(r)] = r;
  around_begin_.push_back(0);
  for (const State& state : states_) {
    for (int c = 0; c < space.chains(); ++c) {
      int k = space.AroundBegin(state.number, c);
      for (; k < space.chain_begin[c + 1]; ++k) {
        if (rank[k] != -1) around_.push_back(rank[k]);
      }
    }
    std::sort(around_.begin() + around_begin_.back(), around_.end());
    around_begin_.push_back(around_.size());
  }
}

// Makes lanes for the ends that Narrow() left, and notes which of them each
// state can lead to.
void PipedreamFits::PutLanes(Lanes& lanes) const {
  lanes.lasts.clear();
  lanes.from.clear();
  lanes.until.assign(ranks(), 0);
  for (int r = 0; r < ranks(); ++r) {
    lanes.from.push_back(static_cast<int>(lanes.lasts.size()));
    int lowest = 0;
    if (!alive_.empty()) {
      const uint64_t* const firsts = &alive_[At(r, lanes.machines)];
      while (lowest < r && !Has(firsts, lowest)) ++lowest;
    }
    if (lowest >= r) continue;
    lanes.lasts.push_back(r);
    lanes.until[lowest] = static_cast<int>(lanes.lasts.size());
  }
  lanes.from.push_back(static_cast<int>(lanes.lasts.size()));
  for (int r = 1; r < ranks(); ++r) {
    lanes.until[r] = std::max(lanes.until[r], lanes.until[r - 1]);
  }
}

// The first run has less to synchronise than other runs.  A lane that could end
// a first run gets no bound, because any state before it may lie in that run.
void PipedreamFits::PutCosts(Lanes& lanes) const {
  lanes.cost.resize(lanes.lasts.size());
  double least = HUGE_VAL;
  for (size_t lane = lanes.lasts.size(); lane-- > 0;) {
    const State& last = states_[lanes.lasts[lane]];
    const double compute = last.seconds / options_.row.devices;
    const double sync = lanes.sync * last.parameter_bytes;
    const bool could_be_first = compute + sync / options_.row.devices <=
                                lanes.most_seconds * (1 + kRounding);
    least = std::min(least, could_be_first ? -HUGE_VAL : compute + sync);
    lanes.cost[lane] = least;
  }
}

void PipedreamFits::Start(Lanes& lanes) const {
  lanes.most_seconds = most_seconds_ * lanes.machines;
  PutCosts(lanes);
  lanes.later.assign(lanes.lasts.size(), -1);
  lanes.later_byte.assign(lanes.lasts.size(), 0);
  lanes.rows.assign(ranks(), Row());
  lanes.ends.assign(static_cast<size_t>(ranks()) * options_.row.devices, 0);
  lanes.devices.clear();
  if (!IsBounded()) return;
  const int most = LaterDevices(options_, options_.machines, lanes.machines);
  lanes.first_with.assign(most + 1, static_cast<int>(lanes.lasts.size()));
  lanes.last_over.assign(most + 1, -1);
}

int PipedreamFits::SpareVersions(double bytes) const {
  constexpr int kMost = 1 << 14;
  const double memory = options_.row.memory_bytes;
  if (bytes * kMost <= memory) return kMost;
  int versions = static_cast<int>(memory / bytes);
  // The same comparison as in PipedreamRow.
  while (bytes <= memory / (versions + 1)) ++versions;
  while (versions > 0 && bytes > memory / versions) --versions;
  return versions - 1;
}

void PipedreamFits::PutSpareVersions(int first) {
  if (!IsBounded()) return;
  spare_versions_.clear();
  for (size_t i = around_begin_[first]; i < around_begin_[first + 1]; ++i) {
    spare_versions_.push_back(
        SpareVersions(states_[around_[i]].bytes - states_[first].bytes));
  }
}

bool PipedreamFits::IsInTime(const Pair& pair, int replicas,
                             double most_seconds) const {
  const Replicas& each = replicas_[replicas];
  return pair.seconds * each.share + pair.parameter_bytes * each.sync <=
             most_seconds &&
         pair.near_seconds * each.share <= most_seconds;
}

int PipedreamFits::Fewest(const Pair& pair, double most_seconds) const {
  return IsInTime(pair, 1, most_seconds) ? 1
                                         : FewestFromTwo(pair, most_seconds);
}

// From two replicas on, more are never slower.  One may be faster than two.
int PipedreamFits::FewestFromTwo(const Pair& pair, double most_seconds) const {
  const int most = most_replicas_;
  if (most < 2 || !IsInTime(pair, most, most_seconds)) return most + 1;
  int replicas = 2;
  const double work = std::max(pair.seconds, pair.near_seconds);
  if (work > 2 * most_seconds) {
    replicas = std::min(most, static_cast<int>(work / most_seconds));
  }
  while (!IsInTime(pair, replicas, most_seconds)) ++replicas;
  return replicas;
}

void PipedreamFits::TakeStage(const Pair& pair, const Lanes& lanes,
                              const Row& to_row, Count* to) const {
  const int replicas = Fewest(pair, lanes.most_seconds);
  if (replicas > most_replicas_) return;
  const Row& row = lanes.rows[pair.last];
  const int begin = std::max(row.begin, lanes.from[pair.first + 1]);
  const int end = std::min(EndBehind(lanes, pair.last, replicas), to_row.end);
  if (begin >= end) return;
  if (IsBounded()) {
    TakeWithSpare(pair, lanes, {begin, end, row.at - row.begin}, replicas,
                  to - to_row.begin);
    return;
  }
  TakeLeast(&lanes.devices[row.at + (begin - row.begin)], end - begin,
            static_cast<Count>(replicas), to + (begin - to_row.begin));
}

// Also tries more replicas than the time needs, because more replicas keep
// fewer versions each.  That helps where the devices behind are too many for
// the memory.  `from.at` and `to` are those of lane 0.
void PipedreamFits::TakeWithSpare(const Pair& pair, const Lanes& lanes,
                                  const Row& from, int replicas,
                                  Count* to) const {
  const Count* const devices = lanes.devices.data() + from.at;
  const int size = static_cast<int>(lanes.first_with.size());
  int end = from.end;
  while (replicas <= most_replicas_) {
    end = std::min(end, EndBehind(lanes, pair.last, replicas));
    if (end <= from.begin) return;
    const int most = std::min(1 << 14, replicas * pair.spare_versions);
    // From lane `sure` on, memory suffices for any number of devices behind.
    const int done = most - options_.row.devices;
    const int sure =
        done < 0       ? end
        : done >= size ? from.begin
                       : std::clamp(lanes.last_over[done] + 1, from.begin, end);
    const int begin = most >= size
                          ? from.begin
                          : std::max(from.begin, lanes.first_with[most]);
    if (begin < sure) {
      const Count each = static_cast<Count>(replicas);
      if (size <= kMostOfByte) {
        TakeLeastWithin(devices + begin, &lanes.later_byte[begin],
                        std::min(most, kMostOfByte - 1), sure - begin, each,
                        to + begin);
      } else {
        TakeLeastWithin(devices + begin, &lanes.later[begin], most,
                        sure - begin, each, to + begin);
      }
    }
    const int rest = std::max(begin, sure);
    if (rest < end) {
      TakeLeast(devices + rest, end - rest, static_cast<Count>(replicas),
                to + rest);
    }
    if (sure == from.begin || pair.spare_versions == 0) return;
    end = sure;
    replicas =
        replicas == 1 ? FewestFromTwo(pair, lanes.most_seconds) : replicas + 1;
    // Memory needs at least this many replicas in the lane with the fewest
    // devices after it.
    const auto fewest =
        std::partition_point(lanes.first_with.begin(), lanes.first_with.end(),
                             [end](int lane) { return lane >= end; });
    const int later = static_cast<int>(fewest - lanes.first_with.begin());
    replicas = std::max(
        replicas, (later + pair.spare_versions - 1) / pair.spare_versions);
  }
}

void PipedreamFits::TakeRow(int first, Lanes& lanes) {
  const State& state = states_[first];
  Row& row = lanes.rows[first];
  row.begin = lanes.from[first];
  row.end = lanes.until[first];
  if (first > 0) {
    const double most = lanes.most_seconds * (1 + kRounding) +
                        state.seconds / options_.row.devices +
                        lanes.sync * state.parameter_bytes;
    row.end = std::min(
        row.end, static_cast<int>(std::upper_bound(lanes.cost.begin(),
                                                   lanes.cost.end(), most) -
                                  lanes.cost.begin()));
  }
  const int own = lanes.from[first + 1] - row.begin;
  row.end = std::max(row.end, row.begin + own);
  row.at = lanes.devices.size();
  lanes.devices.resize(row.at + (row.end - row.begin), kNone);
  if (row.end == row.begin + own) return;
  const bool twice = options_.row.count_transfers;
  if (twice) as_first_.assign(row.end - row.begin, kNone);
  const int last_rank = lanes.lasts[row.end - 1];
  const double most_work =
      lanes.most_seconds * most_replicas_ * (1 + kRounding);
  for (size_t i = around_begin_[first]; i < around_begin_[first + 1]; ++i) {
    const int last = around_[i];
    if (last > last_rank) break;
    const State& end = states_[last];
    if (lanes.rows[last].begin == lanes.rows[last].end ||
        end.seconds - state.seconds > most_work) {
      continue;
    }
    Pair pair{first,
              last,
              end.seconds - state.seconds,
              end.parameter_bytes - state.parameter_bytes,
              0,
              0};
    if (IsBounded()) {
      pair.spare_versions = spare_versions_[i - around_begin_[first]];
      if (pair.spare_versions < 0) continue;
    }
    if (twice) {
      // A first stage waits for no transfers, so it may need fewer replicas.
      // Where it does not, the result of the other case is copied below.
      Pair as_rest = pair;
      as_rest.near_seconds = std::max(state.near_seconds, end.near_seconds);
      const int replicas = Fewest(pair, lanes.most_seconds);
      if (replicas <= most_replicas_ &&
          !IsInTime(as_rest, replicas, lanes.most_seconds)) {
        TakeStage(pair, lanes, row, as_first_.data());
      }
      pair = as_rest;
    }
    TakeStage(pair, lanes, row, &lanes.devices[row.at]);
  }
  if (twice) {
    TakeLeast(&lanes.devices[row.at], row.end - row.begin, 0, as_first_.data());
  }
  TakeRuns(first, lanes, row);
}

bool PipedreamFits::CouldRun(int first, int last, const Lanes& lanes) const {
  if (!alive_.empty() && !Has(&alive_[At(last, lanes.machines)], first)) {
    return false;
  }
  const State& a = states_[first];
  const State& b = states_[last];
  double sync = lanes.sync * (b.parameter_bytes - a.parameter_bytes);
  if (first == 0) {
    sync /= options_.row.devices;
  } else if (std::max(a.far_seconds, b.far_seconds) / lanes.machines >
             most_seconds_) {
    return false;
  }
  return (b.seconds - a.seconds) / options_.row.devices + sync <=
         lanes.most_seconds * (1 + kRounding);
}

// Notes the runs of `row` that were found.  A run that leaves no device for an
// earlier stage is then removed from the row.
void PipedreamFits::TakeRuns(int first, Lanes& lanes, const Row& row) {
  Count* const rest = &lanes.devices[row.at];
  const Count* const devices =
      options_.row.count_transfers ? as_first_.data() : rest;
  int* const ends = &lanes.ends[first * options_.row.devices];
  int end = row.begin;
  const int own = lanes.from[first + 1] - row.begin;
  for (int i = own; i < row.end - row.begin; ++i) {
    const int lane = row.begin + i;
    if (lanes.later[lane] >= 0 && devices[i] <= options_.row.devices) {
      const int last = lanes.lasts[lane];
      if (CouldRun(first, last, lanes)) {
        Add(&found_[At(last, lanes.machines)], first);
        least_[first] = std::min(least_[first], least_[last] + lanes.machines);
      }
    }
    if (rest[i] >= options_.row.devices) rest[i] = kNone;
    if (rest[i] == kNone) continue;
    end = lane + 1;
    ends[rest[i]] = end;
  }
  lanes.rows[first].end = std::max(end, row.begin + own);
  for (int d = 1; d < options_.row.devices; ++d) {
    ends[d] = std::max(ends[d], ends[d - 1]);
  }
}

// Lets runs end at `rank` if that can be of use.
void PipedreamFits::PutEnd(int rank, Lanes& lanes) {
  Row& row = lanes.rows[rank];
  if (lanes.from[rank + 1] == lanes.from[rank]) return;
  const int all = options_.machines;
  const double before =
      states_[rank].seconds /
      (options_.row.devices * most_seconds_ * (1 + kRounding));
  const bool is_of_use = rank > 0 && least_[rank] + lanes.machines <= all &&
                         !(least_[rank] + before > all);
  if (!is_of_use) {
    if (row.end == row.begin + 1) row.end = row.begin;
    return;
  }
  const int lane = row.begin;
  const int later = LaterDevices(options_, least_[rank], lanes.machines);
  lanes.later[lane] = static_cast<int16_t>(later);
  lanes.later_byte[lane] = static_cast<uint8_t>(std::min(later, kMostOfByte));
  lanes.devices[row.at] = 0;
  for (int d = 0; d < options_.row.devices; ++d) {
    int& end = lanes.ends[rank * options_.row.devices + d];
    end = std::max(end, lane + 1);
  }
  if (!IsBounded()) return;
  const int size = static_cast<int>(lanes.first_with.size());
  for (int n = later; n < size; ++n) lanes.first_with[n] = lane;
  for (int n = 0; n < later; ++n) {
    if (lanes.last_over[n] == -1) lanes.last_over[n] = lane;
  }
}

bool PipedreamFits::Solve(double most_seconds) {
  most_seconds_ = most_seconds;
  std::fill(found_.begin(), found_.end(), 0);
  std::fill(least_.begin(), least_.end(), options_.machines + 1);
  least_.back() = 0;
  for (Lanes& lanes : lanes_) Start(lanes);
  for (int rank = ranks() - 1; rank >= 0; --rank) {
    PutSpareVersions(rank);
    for (Lanes& lanes : lanes_) TakeRow(rank, lanes);
    for (Lanes& lanes : lanes_) PutEnd(rank, lanes);
  }
  return least_[0] <= options_.machines;
}

void PipedreamFits::Narrow() {
  const int all = options_.machines;
  // [machines + 1, words]: states with at most this many machines before them.
  std::vector<uint64_t> before(static_cast<size_t>(all + 1) * words_, 0);
  const auto put = [&](int rank, int machines) {
    for (int k = machines; k <= all; ++k) Add(&before[k * words_], rank);
  };
  const auto meets = [&](const uint64_t* bits, int machines) {
    for (int w = 0; w < words_; ++w) {
      if ((bits[w] & before[machines * words_ + w]) != 0) return true;
    }
    return false;
  };
  put(0, 0);
  std::vector<uint64_t> alive(found_.size(), 0);
  for (int last = 1; last < ranks(); ++last) {
    int least = all + 1;
    for (int m = 1; m <= most_machines_; ++m) {
      for (int k = 0; k + m < least; ++k) {
        if (meets(Firsts(last, m), k)) least = k + m;
      }
      const int most = all - m - least_[last];
      if (most < 0) continue;
      for (int w = 0; w < words_; ++w) {
        alive[At(last, m) + w] =
            found_[At(last, m) + w] & before[most * words_ + w];
      }
    }
    if (least <= all) put(last, least);
  }
  alive_ = std::move(alive);
  for (Lanes& lanes : lanes_) PutLanes(lanes);
}

}  // namespace paceline
