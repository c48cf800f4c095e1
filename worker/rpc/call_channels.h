// Channels, and who may let go of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"

namespace paceline {

// Thread-safe.  The last channel of a process joins gRPC's callback threads
// when it is destroyed (1.51, CallbackAlternativeCQ), and so must not be
// destroyed on one: that is what would happen when the end of a call drops the
// last reference.  So every channel is kept here as well, until another thread
// asks for it to be dropped.
class CallChannels {
 public:
  // As paceline::MakeChannel.
  std::shared_ptr<grpc::Channel> Make(const std::string& address);

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

}  // namespace paceline
