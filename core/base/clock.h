// Time for the logic: the caller hands it in, the logic never reads a clock.
#pragma once

#include <chrono>
#include <compare>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace paceline {

// A point on this process's steady clock.  Never crosses the wire.
struct Instant {
  absl::Duration since_start;

  friend absl::Duration operator-(Instant a, Instant b) {
    return a.since_start - b.since_start;
  }
  friend Instant operator+(Instant a, absl::Duration d) {
    return {a.since_start + d};
  }
  friend std::strong_ordering operator<=>(const Instant&,
                                          const Instant&) = default;
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;       // steady; for decisions
  virtual absl::Time Today() const = 0;  // wall clock; for people only
};

// The process's clocks.  Immutable.
class SystemClock final : public Clock {
 public:
  Instant Now() const override {
    return {
        absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch())};
  }
  absl::Time Today() const override { return absl::Now(); }
};

}  // namespace paceline
