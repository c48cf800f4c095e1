// A worker that computes nothing: it attaches, says that it lives, and does at
// once what it is ordered to.  Many fit into one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
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

  // A process begins: with a channel of its own it attaches, again and again
  // until it is welcomed.
  void Start();
  // The process is gone, and its connection with it.
  void Stop();
  // The next heartbeat is due.
  void Beat();
  // Its run fails after this step: says so at once.
  void FailRun(int64_t step);

  bool welcomed() const;
  // When the last heartbeat that said something new was handed to gRPC.
  absl::Time said_at() const;

 private:
  class Stream;
  // Shared with the streams, whose last calls may come after Stop().
  struct State;

  const std::shared_ptr<State> state_;
};

}  // namespace paceline
