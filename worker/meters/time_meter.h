// Where the seconds of the compute thread go; how micro-batches pass through
// this worker, and what it waits for when it does not compute; and the traffic
// of a data plane.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// The fields of TimeSplit that a thread can be at.
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
  // Since the run began; the part that is running counts up to now.
  v1::TimeSplit Read() const;

 private:
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  std::array<absl::Duration, kTimeParts> parts_ ABSL_GUARDED_BY(mutex_);
  absl::Duration wall_ ABSL_GUARDED_BY(mutex_);  // once stopped
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

// One reading of all clocks.
struct FlowMoment {
  absl::Duration steady;
  int64_t unix_us = 0;
  absl::Duration thread_cpu;   // of the compute thread
  absl::Duration process_cpu;  // of all threads
};

// A wait of the compute thread.
struct FlowWait {
  absl::Duration begin;  // steady
  absl::Duration end;
};

// Reads no clock.  Thread-compatible; lives on the compute thread.
//
// In inference seconds count from the first input on.  The time before is the
// filling of the pipeline, which can be computed from the times of all
// workers.  In training seconds count in whole batches: OnBatchBegin() and
// OnBatchEnd() enclose each batch that counts.
class FlowMeter {
 public:
  static constexpr size_t kLatenciesKept = 65'536;

  // kInputs: inference; kBatches: training, whose first batch, before any
  // OnBatchBegin(), does not count.
  enum class Counts : uint8_t { kInputs, kBatches };
  explicit FlowMeter(Counts counts) : counts_(counts) {}

  // An input is here after `wait`.
  //   sent_us  by the clock of the machine before: when it was handed to the
  //            sender; the wait until then was the stage before computing, and
  //            the rest the way.  0: no frame, but the loader's
  void OnInput(const FlowMoment& now, const FlowWait& wait, int64_t sent_us);

  // Training.
  void OnBatchBegin(const FlowMoment& now);
  void OnBatchEnd(const FlowMoment& now, int64_t micro_batches,
                  int64_t samples);
  // A batch that began is not to count from here on.
  void OnBatchDropped() { began_ = false; }
  // The first backward of the batch is done: waits are not for filling any
  // more.
  void OnFilled() { filling_ = false; }
  void OnGate(absl::Duration wait);
  void OnUpdate(absl::Duration wall);

  // Layers run over one micro-batch.
  void OnCompute(absl::Duration wall, absl::Duration cpu);

  // Waited for room at the stage behind.
  //   link  the part of it in which frames were still on the way
  void OnBlocked(absl::Duration wait, absl::Duration link);

  // This worker is done with a micro-batch.
  void OnDone(const FlowMoment& now, int64_t samples);

  // The last stage has compared its outputs with `labels` labels.
  //   loss  summed
  void OnLabels(int64_t labels, int64_t correct, double loss);

  // A micro-batch has left the pipeline: its result is there, or in training
  // its backward is through.
  void OnResult(absl::Duration latency);

  // Quantiles are sorted out when a power of two of results is there, and at
  // the end.
  const v1::FlowTimes& times() const { return times_; }
  void Finish() { SortLatencies(); }

 private:
  void SortLatencies();
  // CPU seconds of the other threads since first_.
  double OtherCpu(const FlowMoment& now) const;

  const Counts counts_;
  v1::FlowTimes times_;  // numbers alone: nothing is allocated
  FlowMoment first_;
  bool began_ = false;
  bool filling_ = false;
  std::vector<float> latencies_;  // seconds; a ring of the newest
  int64_t results_ = 0;
};

// The traffic of a data plane since the process started, in plain numbers or in
// those that several threads count.
template <typename Count, typename Ratio>
struct PlaneTallies {
  Count frames_sent{0};
  Count bytes_sent{0};  // of payload
  Count frames_received{0};
  Count bytes_received{0};
  Count frames_dropped_old{0};        // of an older fence, or forgotten
  Count frames_dropped_duplicate{0};  // sent again after a break
  Count frames_refused{0};            // no peer of this run would send them
  Count checksum_errors{0};           // or sequence: the sender starts over
  Count reconnects{0};                // streams opened again after a break
  // |x - what arrives| / |x| of the last frame that was looked at; 0: raw.
  Ratio codec_error{0};
};
using PlaneStats = PlaneTallies<int64_t, double>;

}  // namespace paceline
