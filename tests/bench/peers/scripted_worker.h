// A worker that computes nothing: it attaches, says that it lives, and does at
// once what it is ordered to.  Many fit into one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "grpcpp/channel.h"
#include "paceline/v1/coordinator.grpc.pb.h"

namespace paceline {

// Thread-safe.
class ScriptedWorker {
 public:
  // Called by gRPC's threads; must not block.
  using OnOrder = std::function<void(int worker, const v1::StandingOrder&)>;

  // number: from 0 on, not used twice with one coordinator.
  ScriptedWorker(std::string coordinator, int number, OnOrder on_order);
  ~ScriptedWorker();

  // A process begins: with a connection of its own it attaches, again and again
  // until it is welcomed.  After Wait(), or first of all.
  void Start();
  // The process is gone: its stream is cancelled.
  void Stop();
  // After Stop(): until no call comes any more; closes the connection.
  void Wait();
  // The next heartbeat is due.
  void Beat();
  // From now on it says in every heartbeat of a run that it has done a step,
  // and where its time went.
  void Compute();
  // Its run fails after this step: says so at once.
  void FailRun(int64_t step);

  bool welcomed() const;
  // When the last heartbeat that said something new was handed to gRPC.
  Instant said_at() const;

 private:
  class Stream;

  // A stream that ended is dropped here, not by gRPC's thread that says so:
  // gRPC 1.51 corrupts its memory where one of its own threads drops the last
  // channel.
  void DropEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const std::string coordinator_;
  const int number_;
  const OnOrder on_order_;

  mutable absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = true;
  v1::OrderNumber echo_ ABSL_GUARDED_BY(mutex_);
  v1::RunState run_ ABSL_GUARDED_BY(mutex_);  // without a job: none
  bool computes_ ABSL_GUARDED_BY(mutex_) = false;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;
  Instant said_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
