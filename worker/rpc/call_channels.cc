#include "worker/rpc/call_channels.h"

#include <algorithm>

#include "core/rpc/channel.h"

namespace paceline {

std::shared_ptr<grpc::Channel> CallChannels::Make(const std::string& address) {
  std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
  absl::MutexLock lock(&mutex_);
  channels_.push_back(channel);
  return channel;
}

void CallChannels::OnCallStarted() {
  absl::MutexLock lock(&mutex_);
  ++calls_;
}

void CallChannels::OnCallEnded() {
  absl::MutexLock lock(&mutex_);
  --calls_;
}

void CallChannels::DropUnused() {
  std::vector<std::shared_ptr<grpc::Channel>> dropped;  // without the lock
  absl::MutexLock lock(&mutex_);
  // A count of one is final: only this holds the channel.
  const auto unused = std::partition(
      channels_.begin(), channels_.end(),
      [](const auto& channel) { return channel.use_count() > 1; });
  dropped.assign(unused, channels_.end());
  channels_.erase(unused, channels_.end());
}

void CallChannels::AwaitCalls() {
  {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return calls_ == 0;
    };
    mutex_.Await(absl::Condition(&ended));
  }
  DropUnused();
}

}  // namespace paceline
