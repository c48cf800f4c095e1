// Identifiers that the compiler keeps apart.
#pragma once

#include <cstdint>
#include <utility>

namespace paceline {

template <typename Tag>
struct Id {
  int64_t value = -1;  // -1: not assigned

  bool assigned() const { return value >= 0; }
  friend auto operator<=>(Id a, Id b) = default;

  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value);
  }
};

using WorkerId = Id<struct WorkerTag>;  // one name, for good; from the store
using JobId = Id<struct JobTag>;        // grows by submission, starts at 1

// Drawn at random when a process starts; tells a restart from a delay.
struct Incarnation {
  uint64_t value = 0;  // 0: not set

  friend auto operator<=>(Incarnation a, Incarnation b) = default;
};

// A fence names one life of a job: messages of an earlier one are refused.
// Fences of a job are ordered: a later attempt or plan is greater.
struct Fence {
  JobId job;
  int64_t attempt = 0;       // grows with every restore of the job
  int64_t plan_version = 0;  // grows when layers move

  friend auto operator<=>(const Fence& a, const Fence& b) = default;
};

}  // namespace paceline
