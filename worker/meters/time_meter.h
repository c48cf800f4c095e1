// Where the seconds of the compute thread go.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

enum class TimePart : uint8_t {
  kForward,
  kBackward,
  kEvaluation,   // forwards between training steps, on the test set
  kSend,         // queueing frames, waiting for room before a batch
  kReceiveWait,  // waiting for a neighbour's frame
  kAggregate,    // report and step gate
  kOptimizer,
  kSnapshot,  // handing the weights over
  kData,      // waiting for the loader
  kOrders,    // waiting for orders, preparing a run
};
constexpr int kTimeParts = 10;
absl::string_view TimePartName(TimePart part);

// Seconds by part since the run began.
struct TimeReading {
  std::array<absl::Duration, kTimeParts> parts{};
  absl::Duration wall;

  absl::Duration unexplained() const;
};

// As heartbeats carry it.
v1::TimeSplit ToProto(const TimeReading& reading);

// Thread-safe: the compute thread enters and leaves parts, others read.  Parts
// do not nest.
class TimeMeter {
 public:
  // `clock` outlives this.
  explicit TimeMeter(const Clock& clock);

  // Starts again from zero, in no part.
  void Restart();
  // Freezes the wall time until the next Restart().
  void Stop();

  void Enter(TimePart part);
  void Leave();

  // How long the thread has been at the part that it computes; nothing: it
  // waits, for others or for data.
  std::optional<absl::Duration> Computing() const;
  // The part that is running counts up to now.
  TimeReading Read() const;

 private:
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  TimeReading reading_ ABSL_GUARDED_BY(mutex_);
  Instant began_ ABSL_GUARDED_BY(mutex_);
  Instant entered_ ABSL_GUARDED_BY(mutex_);
  bool inside_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  TimePart part_ ABSL_GUARDED_BY(mutex_) = TimePart::kForward;
};

// Counts its own life as `part`.
class ScopedPart {
 public:
  ScopedPart(TimeMeter& meter, TimePart part) : meter_(meter) {
    meter_.Enter(part);
  }
  ~ScopedPart() { meter_.Leave(); }
  ScopedPart(const ScopedPart&) = delete;
  ScopedPart& operator=(const ScopedPart&) = delete;

 private:
  TimeMeter& meter_;
};

}  // namespace paceline
