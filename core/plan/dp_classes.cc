#include "core/plan/dp_classes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace paceline {
namespace {

bool SameDevice(const Device& a, const Device& b) {
  return a.speed == b.speed && a.layer_seconds == b.layer_seconds &&
         a.memory_bytes == b.memory_bytes &&
         a.frame_seconds == b.frame_seconds &&
         a.frame_seconds_per_byte == b.frame_seconds_per_byte;
}

bool SwapKeepsLinks(const PlanProblem& problem, int a, int b) {
  const auto& links = problem.links;
  if (!(links[a][b] == links[b][a])) return false;
  for (int other = 0; other < static_cast<int>(links.size()); ++other) {
    if (other == a || other == b) continue;
    if (!(links[a][other] == links[b][other]) ||
        !(links[other][a] == links[other][b])) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::vector<int>> InterchangeableDevices(
    const PlanProblem& problem) {
  std::vector<std::vector<int>> classes;
  for (int device = 0; device < static_cast<int>(problem.devices.size());
       ++device) {
    // Swaps that change nothing are closed under composition: one member
    // stands for its class.
    const auto home = std::find_if(
        classes.begin(), classes.end(), [&](const std::vector<int>& members) {
          return SameDevice(problem.devices[members[0]],
                            problem.devices[device]) &&
                 SwapKeepsLinks(problem, members[0], device);
        });
    if (home == classes.end()) {
      classes.push_back({device});
    } else {
      home->push_back(device);
    }
  }
  return classes;
}

double DpSets::CountSets(const std::vector<std::vector<int>>& classes) {
  double sets = 1;
  for (const std::vector<int>& members : classes) {
    sets *= static_cast<double>(members.size() + 1);
  }
  return sets;
}

double DpSets::CountPairs(const std::vector<std::vector<int>>& classes,
                          bool replicas) {
  if (!replicas)
    return CountSets(classes) * static_cast<double>(classes.size());
  double pairs = 1;
  for (const std::vector<int>& members : classes) {
    const double n = static_cast<double>(members.size());
    pairs *= (n + 1) * (n + 2) / 2;
  }
  return pairs;
}

DpSets::DpSets(const DpTable& table, std::vector<std::vector<int>> classes)
    : classes_(std::move(classes)) {
  for (const std::vector<int>& a : classes_) {
    std::vector<WireCost> row;
    for (const std::vector<int>& b : classes_) {
      // Of one class alone: between two of its members, if it has two.
      const int other = &a == &b ? b.back() : b[0];
      row.push_back(table.Wire(a[0], other));
    }
    wires_.push_back(std::move(row));
  }
  AddSetsOf(table);
  AddPairs(table.problem().replicas);
}

void DpSets::AddSetsOf(const DpTable& table) {
  const int sets = static_cast<int>(CountSets(classes_));
  sets_.resize(sets);
  for (int code = 0; code < sets; ++code) {
    ClassSet& set = sets_[code];
    set.code = code;
    int rest = code;
    for (size_t c = 0; c < classes_.size(); ++c) {
      const int radix = static_cast<int>(classes_[c].size()) + 1;
      const int count = rest % radix;
      rest /= radix;
      if (count == 0) continue;
      set.size += count;
      set.counts.push_back({static_cast<int>(c), count});
      set.devices.insert(set.devices.end(), classes_[c].begin(),
                         classes_[c].begin() + count);
    }
    set.sync = table.SyncOf(set.devices);
  }
}

void DpSets::AddPairs(bool replicas) {
  inside_.resize(sets_.size());
  for (int free = 0; free < size(); ++free) {
    std::vector<int> codes = {0};
    int radix = 1;
    size_t next = 0;  // among the counts of `free`
    const std::vector<ClassCount>& counts = sets_[free].counts;
    for (size_t c = 0; c < classes_.size(); ++c) {
      if (next < counts.size() &&
          counts[next].of_class == static_cast<int>(c)) {
        const size_t before = codes.size();
        const int most = replicas ? counts[next].count : 1;
        for (int count = 1; count <= most; ++count) {
          // Without replicas only the empty set is extended: one device.
          const size_t extended = replicas ? before : 1;
          for (size_t i = 0; i < extended; ++i) {
            codes.push_back(codes[i] + count * radix);
          }
        }
        ++next;
      }
      radix *= static_cast<int>(classes_[c].size()) + 1;
    }
    codes.erase(codes.begin());
    std::sort(codes.begin(), codes.end());
    inside_[free] = std::move(codes);
  }
}

}  // namespace paceline
