// A route says which replica of a stage computes which micro-batch.
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace paceline {

// A periodic table, the same for all processes of a run: micro-batch m of the
// run goes to the replica whose turn m mod period is.
class RouteTable {
 public:
  // The table of a stage with one worker: all micro-batches go to it.
  RouteTable() = default;
  // turns: replicas, CheckTurns() is OK.
  explicit RouteTable(std::vector<int> turns) : turns_(std::move(turns)) {}

  // The same turns, which begin anew with each batch.
  RouteTable InEachBatch() const {
    RouteTable table = *this;
    table.begins_anew_ = true;
    return table;
  }

  int ReplicaOf(int64_t micro_batch) const {
    return turns_.empty() ? 0 : turns_[micro_batch % period()];
  }
  // Names who gets micro-batch `micro_batch` of batch `batch`, before which
  // there were as many micro-batches unless the table begins anew.  Any numbers
  // will do: what a neighbour writes is not trusted.
  int ReplicaOf(int64_t batch, int32_t micro_batch) const {
    const auto turn = static_cast<uint64_t>(begins_anew_ ? 0 : batch) +
                      static_cast<uint64_t>(micro_batch);
    return ReplicaOf(static_cast<int64_t>(turn & INT64_MAX));
  }
  // The first micro-batch from `from` on that goes to `replica`, which has a
  // turn.  O(period).
  int64_t NextOf(int replica, int64_t from) const;

  const std::vector<int>& turns() const { return turns_; }
  int64_t period() const { return std::ssize(turns_); }
  bool begins_anew() const { return begins_anew_; }

  friend bool operator==(const RouteTable&, const RouteTable&) = default;

 private:
  std::vector<int> turns_;  // [period]; empty: one replica
  bool begins_anew_ = false;
};

// One replica's part of a table; the default has all micro-batches.
struct Turns {
  RouteTable route;
  int replica = 0;

  bool Has(int64_t micro_batch) const {
    return route.ReplicaOf(micro_batch) == replica;
  }
  bool Has(int64_t batch, int32_t micro_batch) const {
    return route.ReplicaOf(batch, micro_batch) == replica;
  }
  // The replica's first micro-batch from `from` on.
  int64_t Next(int64_t from) const { return route.NextOf(replica, from); }
};

// The longest period of a table for so many replicas.
int MostTurns(int replicas);

// Weighted round robin: every micro-batch goes to the replica that
// is furthest behind its share, the lowest of several.  The period is the
// shortest with which every share is met to 1 %, or else the one up to
// MostTurns() that comes closest; every replica has a turn at least.  After any
// k micro-batches a replica's count differs from k x its turns / period by less
// than 1 for two replicas, and by less than their number in general.
//
//   shares  [replicas], positive, in any unit
RouteTable MakeRouteTable(const std::vector<double>& shares);

// Errors: InvalidArgument  a turn of no replica, a replica without a turn, or
//         too many turns
absl::Status CheckTurns(const std::vector<int>& turns, int replicas);

}  // namespace paceline
