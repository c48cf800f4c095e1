// Counters, timers, channels and options that all parts of a plane use.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/steady_wait.h"
#include "core/base/thread.h"
#include "core/rpc/certificates.h"
#include "core/rpc/stream_limit.h"
#include "grpcpp/channel.h"
#include "worker/measure/plane_stats.h"

namespace paceline {

class PieceStore;

// Thread-safe.  As PlaneStats.
struct PlaneCounters {
  PlaneStats Read() const {
    return {frames_sent,    bytes_sent,         frames_received,
            bytes_received, frames_dropped_old, frames_dropped_duplicate,
            frames_refused, checksum_errors,    reconnects,
            bytes_borrowed, codec_error};
  }

  std::atomic<int64_t> frames_sent{0};
  std::atomic<int64_t> bytes_sent{0};
  std::atomic<int64_t> frames_received{0};
  std::atomic<int64_t> bytes_received{0};
  std::atomic<int64_t> frames_dropped_old{0};
  std::atomic<int64_t> frames_dropped_duplicate{0};
  std::atomic<int64_t> frames_refused{0};
  std::atomic<int64_t> checksum_errors{0};
  std::atomic<int64_t> reconnects{0};
  std::atomic<int64_t> bytes_borrowed{0};
  std::atomic<double> codec_error{0};
};

struct PlaneOptions {
  // This process.  A request for pieces of another one is refused, and at once,
  // even when no run is open, a frame of a round.  Not set: the run's.
  Incarnation incarnation = {};
  // The data plane serves these pieces to other workers; null: none.  Outlives
  // it.
  PieceStore* pieces = nullptr;
  // How long a stream of a newer fence, or of a sender that is no peer yet,
  // waits for this worker's own order.
  absl::Duration hold = absl::Seconds(30);
  // How long a closed run goes on sending what its neighbours still need.
  absl::Duration linger = absl::Seconds(10);
  // How long a neighbour that was never reached may stay out of reach before
  // the run fails.
  absl::Duration reach = absl::Seconds(30);
  // How long a stream may take to say hello to a run that is open or to come.
  absl::Duration hello = absl::Seconds(10);
};

// Channels, and who may let go of them.

// Thread-safe.  The last channel of a process joins gRPC's callback threads
// when it is destroyed (1.51, CallbackAlternativeCQ), and so must not be
// destroyed on one: that is what would happen when the end of a call drops the
// last reference.  So every channel is kept here as well, until another thread
// asks for it to be dropped.
class CallChannels {
 public:
  // As paceline::MakeChannel.
  std::shared_ptr<grpc::Channel> Make(const std::string& address,
                                      Role server = Role::kWorker);

  // Around every call, the end after all that the call held is gone.
  void OnCallStarted();
  void OnCallEnded();

  // Drops the channels that nobody else uses.  Not on a thread of gRPC.
  void DropUnused();

  // Waits until all calls have ended, which must have been cancelled, and
  // drops what is unused.  Not on a thread of gRPC.
  void AwaitCalls();

 private:
  absl::Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

// Runs closures after a given time, on one thread of its own.

// Thread-safe.  Closures must not block; they may add others.
class TimerThread {
 public:
  explicit TimerThread(std::string name);
  ~TimerThread();  // Stop()

  // Dropped, unrun, after Stop().
  void Run(std::function<void()> task) { RunAfter(-kForever, task); }
  void RunAfter(absl::Duration pause, std::function<void()> task);

  // Drops what has not run, and joins (not from a closure).  Safe to repeat.
  void Stop();

 private:
  static constexpr absl::Duration kForever = absl::InfiniteDuration();

  void Loop();

  SteadyMutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // By time, then in the order they came.
  std::map<std::pair<Instant, uint64_t>, std::function<void()>> tasks_
      ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

// Thread-safe.  Shared by a plane and by its streams, which gRPC may keep for a
// moment longer; Plane::Shutdown() stops the timers.  The first one tells the
// allocator of the process to keep freed memory.
struct PlaneShared {
  PlaneShared(const PlaneOptions& o, std::string thread_name);

  const PlaneOptions options;
  PlaneCounters counters;
  StreamLimit strangers;
  CallChannels channels;
  TimerThread timers;
};

}  // namespace paceline
