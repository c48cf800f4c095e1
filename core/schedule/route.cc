#include "core/schedule/route.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr double kShareTolerance = 0.01;

// Returns the turns of each replica in a period: its due rounded down, at least
// one, and a turn more for the replicas that are furthest below their due.
//
//   due  [replicas], together `period`
std::vector<int> CountTurns(const std::vector<double>& due, int period) {
  std::vector<int> counts;
  for (const double turns : due) {
    counts.push_back(std::max(1, static_cast<int>(turns)));
  }
  int left = period - std::accumulate(counts.begin(), counts.end(), 0);
  // Shares come from divisions: their rounding must not break a tie.
  constexpr double kRounding = 1e-9;
  for (; left != 0; left -= left > 0 ? 1 : -1) {
    const int step = left > 0 ? 1 : -1;
    size_t best = 0;
    double furthest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < due.size(); ++i) {
      if (counts[i] + step < 1) continue;
      const double off = step * (due[i] - counts[i]);
      if (off <= furthest + kRounding) continue;
      best = i;
      furthest = off;
    }
    counts[best] += step;
  }
  return counts;
}

// Returns the largest relative error of a share.
double WorstError(const std::vector<double>& due,
                  const std::vector<int>& counts) {
  double worst = 0;
  for (size_t i = 0; i < due.size(); ++i) {
    worst = std::max(worst, std::abs(counts[i] / due[i] - 1));
  }
  return worst;
}

// Spreads the turns of all replicas over the period.
std::vector<int> Spread(const std::vector<int>& counts, int period) {
  std::vector<int> turns;
  std::vector<int64_t> given(counts.size(), 0);
  for (int turn = 0; turn < period; ++turn) {
    size_t best = 0;
    int64_t most_behind = std::numeric_limits<int64_t>::min();
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t behind =
          int64_t{counts[i]} * (turn + 1) - given[i] * period;
      if (behind > most_behind) {
        best = i;
        most_behind = behind;
      }
    }
    ++given[best];
    turns.push_back(static_cast<int>(best));
  }
  return turns;
}

}  // namespace

int64_t RouteTable::NextOf(int replica, int64_t from) const {
  for (int64_t micro_batch = from; micro_batch <= from + period();
       ++micro_batch) {
    if (ReplicaOf(micro_batch) == replica) return micro_batch;
  }
  PACELINE_CHECK(false, "replica=", replica, " has no turn");
}

int MostTurns(int replicas) { return std::max(64, 2 * replicas); }

RouteTable MakeRouteTable(const std::vector<double>& shares) {
  const int replicas = static_cast<int>(shares.size());
  if (replicas <= 1) return RouteTable();
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int> best;
  int best_period = 0;
  double least_error = std::numeric_limits<double>::infinity();
  for (int period = replicas; period <= MostTurns(replicas); ++period) {
    std::vector<double> due;
    for (const double share : shares) due.push_back(share / sum * period);
    std::vector<int> counts = CountTurns(due, period);
    const double error = WorstError(due, counts);
    if (error >= least_error) continue;
    least_error = error;
    best = std::move(counts);
    best_period = period;
    if (error <= kShareTolerance) break;
  }
  return RouteTable(Spread(best, best_period));
}

absl::Status CheckTurns(const std::vector<int>& turns, int replicas) {
  if (turns.empty() && replicas == 1) return absl::OkStatus();
  if (replicas < 1) return InvalidArgument("a stage without replicas");
  if (std::ssize(turns) > MostTurns(replicas)) {
    return InvalidArgument("a route of ", turns.size(), " turns for ", replicas,
                           " replicas, at most ", MostTurns(replicas));
  }
  std::vector<int> counts(replicas, 0);
  for (const int turn : turns) {
    if (turn < 0 || turn >= replicas) {
      return InvalidArgument("a route has a turn for replica ", turn, " of ",
                             replicas);
    }
    ++counts[turn];
  }
  const auto idle = std::find(counts.begin(), counts.end(), 0);
  if (idle == counts.end()) return absl::OkStatus();
  return InvalidArgument("a route has no turn for replica ",
                         idle - counts.begin(), " of ", replicas);
}

}  // namespace paceline
