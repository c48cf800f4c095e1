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
#include "core/os/thread.h"
#include "core/rpc/listener.h"
#include "core/trust/certificates.h"
#include "grpcpp/channel.h"
#include "worker/meters/time_meter.h"

namespace paceline {

class PieceStore;

// Thread-safe.
struct PlaneCounters : PlaneTallies<std::atomic<int64_t>, std::atomic<double>> {
  PlaneStats Read() const {
    return {frames_sent,    bytes_sent,         frames_received,
            bytes_received, frames_dropped_old, frames_dropped_duplicate,
            frames_refused, checksum_errors,    reconnects,
            codec_error};
  }
};

struct PlaneOptions {
  // This process.  It refuses a request for another process's pieces.  It also
  // refuses a frame of a round for another process at once, even when no run is
  // open.  Not set: the run's.
  Incarnation incarnation = {};
  // The data plane serves these pieces to other workers; null: none.  They
  // outlive it.
  PieceStore* pieces = nullptr;
  // A stream of a newer fence, or of a sender that is no peer yet, waits this
  // long for this worker's own order.
  absl::Duration hold = absl::Seconds(30);
  // A closed run goes on sending frames that its neighbours still need for this
  // long.
  absl::Duration linger = absl::Seconds(10);
  // The run fails when a neighbour that was never reached stays out of reach
  // for this long.
  absl::Duration reach = absl::Seconds(30);
  // A stream must say hello to a present or future run within this time.
  absl::Duration hello = absl::Seconds(10);
};

// Makes channels, and keeps each until a safe thread can destroy it.
//
// Thread-safe.  The destruction of a process's last channel joins gRPC's
// callback threads (1.51, CallbackAlternativeCQ), so it must not happen on one
// of them.  The end of a call would do just that by dropping the last
// reference.  So this object keeps every channel too, until another thread
// calls DropUnused().
class CallChannels {
 public:
  // As paceline::MakeChannel.
  std::shared_ptr<grpc::Channel> Make(const std::string& address,
                                      Role server = Role::kWorker);

  // Surround every call; the end comes after all objects of the call are gone.
  void OnCallStarted() {
    absl::MutexLock lock(&mutex_);
    ++calls_;
  }
  void OnCallEnded() {
    absl::MutexLock lock(&mutex_);
    --calls_;
  }

  // Drops channels without other users.  Do not call it on gRPC's threads.
  void DropUnused();

  // Waits until all calls have ended (they must have been cancelled), and drops
  // unused channels.  Do not call it on gRPC's threads.
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

  // After Stop() the task is dropped without running.
  void Run(std::function<void()> task) { RunAfter(-kForever, task); }
  void RunAfter(absl::Duration pause, std::function<void()> task);

  // Drops waiting tasks, and joins (not from a closure).  Safe to repeat.
  void Stop();

 private:
  static constexpr absl::Duration kForever = absl::InfiniteDuration();

  void Loop();

  SteadyMutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // By time, then in the order of arrival.
  std::map<std::pair<Instant, uint64_t>, std::function<void()>> tasks_
      ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

// Thread-safe.  Shared by a plane and its streams, which gRPC may keep for a
// moment longer; Plane::Shutdown() stops the timers.  The first one makes the
// process's allocator keep freed memory.
struct PlaneShared {
  PlaneShared(const PlaneOptions& o, std::string thread_name);

  const PlaneOptions options;
  PlaneCounters counters;
  StreamLimit strangers;
  CallChannels channels;
  TimerThread timers;
};

}  // namespace paceline
