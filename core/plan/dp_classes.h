// Devices that may be swapped without changing any cost, and sets of devices
// as counts over them: 16 equal machines have 17 sets, not 65,536.  Immutable
// after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/dp_table.h"
#include "core/plan/problem.h"

namespace paceline {

// [classes][members], each ascending, classes by their first member.  Two
// devices share a class when they have the same speed, measured seconds,
// memory and frame costs, and swapping them leaves every link as it was.
// O(devices^3).
std::vector<std::vector<int>> InterchangeableDevices(
    const PlanProblem& problem);

struct ClassCount {
  int of_class = 0;
  int count = 0;
};

// How many devices of each class.  `code` is its number in mixed radix: codes
// of disjoint sets add up to the code of their union.
struct ClassSet {
  int code = 0;
  int size = 0;
  std::vector<ClassCount> counts;  // those above 0
  std::vector<int> devices;        // the first `count` members of each
  SyncCost sync;
};

class DpSets {
 public:
  // classes: InterchangeableDevices of table's problem.
  // O(sets x devices^2 + pairs); see CountSets and CountPairs first.
  DpSets(const DpTable& table, std::vector<std::vector<int>> classes);

  // Sets there are, the empty one too.
  static double CountSets(const std::vector<std::vector<int>>& classes);
  // Pairs (free, a set inside it that can hold a stage).
  static double CountPairs(const std::vector<std::vector<int>>& classes,
                           bool replicas);

  const ClassSet& set(int code) const { return sets_[code]; }
  int size() const { return static_cast<int>(sets_.size()); }
  int full() const { return size() - 1; }
  const std::vector<std::vector<int>>& classes() const { return classes_; }

  // Codes of the sets inside `free` that can hold a stage, ascending.
  const std::vector<int>& StageSetsIn(int free) const { return inside_[free]; }

  // Between a device of class a and another one of class b.
  const WireCost& Wire(int a, int b) const { return wires_[a][b]; }

 private:
  void AddSetsOf(const DpTable& table);
  void AddPairs(bool replicas);

  std::vector<std::vector<int>> classes_;
  std::vector<ClassSet> sets_;                // [code]
  std::vector<std::vector<int>> inside_;      // [code]
  std::vector<std::vector<WireCost>> wires_;  // [classes][classes]
};

}  // namespace paceline
