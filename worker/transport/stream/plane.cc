#include "worker/transport/stream/plane.h"

namespace paceline {

Plane::Plane(const PlaneOptions& options, const Traits& traits)
    : shared_(std::make_shared<PlaneShared>(options, traits.thread_name)),
      traits_(traits) {}

// --- Runs -------------------------------------------------------------------

absl::Status Plane::OpenRun(const Fence& fence, std::shared_ptr<PlaneRun> run) {
  absl::MutexLock lock(&mutex_);
  if (shut_down_) return Cancelled("the worker is stopping");
  if (fence_.open) {
    return FailedPrecondition("cannot open ", ToText(fence), ": ",
                              ToText(*fence_.open), " is still open");
  }
  if (fence_.left.Has(fence)) {
    return Aborted("cannot open ", ToText(fence),
                   ": it, or a later one, was open before");
  }
  fence_.open = fence;
  run_ = std::move(run);
  return absl::OkStatus();
}

void Plane::CloseRun(const PlaneRun& run) {
  std::shared_ptr<PlaneRun> closed;  // freed without the lock
  absl::MutexLock lock(&mutex_);
  if (run_.get() != &run) return;
  closed = std::move(run_);
  fence_.left.Add(*std::exchange(fence_.open, std::nullopt));
}

std::pair<FenceVerdict, std::shared_ptr<PlaneRun>> Plane::Decide(
    const Fence& fence) {
  absl::MutexLock lock(&mutex_);
  const FenceVerdict verdict = DecideFence(fence_, fence);
  return {verdict, verdict == FenceVerdict::kAccept ? run_ : nullptr};
}

void Plane::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
  }
  const std::shared_ptr<PlaneRun> run = open_run();
  if (run != nullptr) CloseRun(*run);
  EndRun(run, Cancelled("the worker is stopping"));
  EndStreams(Unavailable("the worker is stopping"));
  shared_->timers.Stop();
  shared_->channels.AwaitCalls();
}

// --- Streams ----------------------------------------------------------------

InboundStream* Plane::Accept(const std::string& peer) {
  const auto stream =
      std::make_shared<InboundStream>(*this, shared_, traits_.small_bytes);
  bool refused = false;
  {
    absl::MutexLock lock(&mutex_);
    refused = shut_down_;
    streams_.insert(stream);
  }
  stream->Start(peer);
  if (refused) stream->End(Unavailable("the worker is stopping"));
  return stream.get();
}

absl::StatusOr<Plane::Reading> Plane::OnMessage(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  absl::StatusOr<Reading> taken = Take(stream, message);
  Count(taken.status());
  return taken;
}

absl::StatusOr<Plane::Reading> Plane::Take(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  PACELINE_ASSIGN_OR_RETURN(FrameLayout layout, Parse(message));
  const auto [verdict, run] = Decide(layout.header.fence);
  switch (verdict) {
    case FenceVerdict::kHoldNewer:
      return Reading::kHold;
    case FenceVerdict::kDropOlder:
      if (traits_.ends_older) {
        return Aborted(ToText(layout.header.fence), " is over on this worker");
      }
      ++shared_->counters.frames_dropped_old;
      return Reading::kGoOn;
    case FenceVerdict::kAccept:
      break;
  }
  return run->OnFrame(stream, message, std::move(layout));
}

absl::StatusOr<int64_t> Plane::FrameBytes(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  absl::StatusOr<int64_t> bytes = FrameBytesOf(stream, message);
  Count(bytes.status());
  return bytes;
}

void Plane::Count(const absl::Status& error) {
  PlaneCounters& counters = shared_->counters;
  if (absl::IsDataLoss(error)) ++counters.checksum_errors;
  if (absl::IsAborted(error)) ++counters.frames_dropped_old;
  if (absl::IsInvalidArgument(error)) ++counters.frames_refused;
}

void Plane::OnBurstEnd() {
  if (const auto run = open_run()) run->OnBurstEnd();
}

void Plane::OnStreamDone(const std::shared_ptr<InboundStream>& stream) {
  {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  }
  if (const auto run = open_run()) run->OnStreamDone(stream);
}

}  // namespace paceline
