#include "worker/transport/plane.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {

Plane::Plane(const PlaneOptions& options, const char* thread_name,
             size_t small_bytes)
    : shared_(std::make_shared<PlaneShared>(options, thread_name)),
      small_bytes_(small_bytes) {}

absl::Status Plane::OpenFenceLocked(const Fence& fence) {
  if (shut_down_) return absl::CancelledError("the worker is stopping");
  if (fence_.open) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open ", ToText(fence), ": ", ToText(*fence_.open),
                     " is still open"));
  }
  if (fence_.left.Has(fence)) {
    return absl::AbortedError(
        absl::StrCat("cannot open ", ToText(fence),
                     ": it, or a later one, was open before"));
  }
  fence_.open = fence;
  return absl::OkStatus();
}

void Plane::CloseFenceLocked() {
  if (fence_.open) fence_.left.Add(*std::exchange(fence_.open, std::nullopt));
}

InboundStream* Plane::Accept(const std::string& peer) {
  const auto stream =
      std::make_shared<InboundStream>(*this, shared_, small_bytes_);
  bool refused = false;
  {
    absl::MutexLock lock(&mutex_);
    refused = shut_down_;
    streams_.insert(stream);
  }
  stream->Start(peer);
  if (refused) stream->End(absl::UnavailableError("the worker is stopping"));
  return stream.get();
}

std::set<std::shared_ptr<InboundStream>> Plane::streams() {
  absl::MutexLock lock(&mutex_);
  return streams_;
}

void Plane::EndStreams(const absl::Status& why) {
  for (const auto& stream : streams()) stream->End(why);
}

void Plane::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
    CloseFenceLocked();
  }
  EndRun(absl::CancelledError("the worker is stopping"));
  EndStreams(absl::UnavailableError("the worker is stopping"));
  shared_->timers.Stop();
  shared_->channels.AwaitCalls();
}

void Plane::OnStreamDone(const std::shared_ptr<InboundStream>& stream) {
  {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  }
  OnStreamGone(stream);
}

}  // namespace paceline
