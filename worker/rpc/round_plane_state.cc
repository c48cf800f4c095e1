#include "worker/rpc/round_plane_state.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/transfer/frame.h"
#include "worker/rpc/near_memory.h"

namespace paceline {

class RoundPlaneState::Transport final : public RoundTransport {
 public:
  Transport(std::shared_ptr<RoundPlaneState> plane,
            std::shared_ptr<RoundRun> run)
      : plane_(std::move(plane)), run_(std::move(run)) {}
  ~Transport() override { Close(); }

  void SetPeers(const std::vector<GroupWorker>& peers) override {
    run_->SetPeers(peers);
  }
  void SendAhead(const MemberId& to, const PayloadKey& key,
                 std::shared_ptr<RoundPayload> payload) override {
    run_->SendAhead(to, key, std::move(payload));
  }
  void Send(const MemberId& to, RoundMessage message, const PayloadKey& key,
            std::shared_ptr<RoundPayload> payload) override {
    run_->Send(to, message, key, std::move(payload));
  }
  void Forget(int64_t step) override { run_->Forget(step); }
  void Close() override { plane_->Close(run_); }

 private:
  const std::shared_ptr<RoundPlaneState> plane_;
  const std::shared_ptr<RoundRun> run_;
};

RoundPlaneState::RoundPlaneState(const RoundPlaneOptions& options)
    : options_(options),
      shared_(std::make_shared<PlaneShared>(
          DataPlaneOptions{.hold = options.hold, .hello = options.hello},
          "round-plane")) {}

absl::StatusOr<std::unique_ptr<RoundTransport>> RoundPlaneState::Open(
    const Fence& fence, const MemberId& self, RoundSink* sink) {
  const auto run = std::make_shared<RoundRun>(fence, self, *sink, shared_);
  std::set<std::shared_ptr<InboundStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    if (shut_down_) return absl::CancelledError("the worker is stopping");
    if (run_ != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot open the rounds of ", ToText(fence), ": ",
                       ToText(run_->fence()), " is still open"));
    }
    if (closed_.has_value() && fence <= *closed_) {
      return absl::AbortedError(
          absl::StrCat("cannot open the rounds of ", ToText(fence), ": ",
                       ToText(*closed_), " was open before"));
    }
    run_ = run;
    streams = streams_;
  }
  // On the plane's thread: the sink is not called before this has returned.
  for (const auto& stream : streams) {
    shared_->timers.Run([stream] { stream->Resume(); });
  }
  return std::make_unique<Transport>(shared_from_this(), run);
}

void RoundPlaneState::Close(const std::shared_ptr<RoundRun>& run) {
  {
    absl::MutexLock lock(&mutex_);
    if (run_ == run) {
      closed_ = run->fence();
      run_ = nullptr;
    }
  }
  run->Close();
}

RoundPlaneStats RoundPlaneState::stats() const {
  const PlaneCounters& counters = shared_->counters;
  return {counters.frames_sent,        counters.bytes_sent,
          counters.frames_received,    counters.bytes_received,
          counters.frames_dropped_old, counters.frames_dropped_duplicate,
          counters.frames_refused,     counters.checksum_errors,
          counters.reconnects,         counters.bytes_borrowed};
}

void RoundPlaneState::Shutdown() {
  std::shared_ptr<RoundRun> run;
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
    run = run_;
  }
  if (run != nullptr) Close(run);
  EndStreams(absl::UnavailableError("the worker is stopping"));
  shared_->timers.Stop();
  shared_->channels.AwaitCalls();
}

InboundStream* RoundPlaneState::Accept(const std::string& peer) {
  // Frames are worked on by gRPC's threads, small ones too: they are few, and
  // must not wait behind another stream's.
  const auto stream = std::make_shared<InboundStream>(
      *this, shared_, /*small_bytes=*/0, IsNear(peer));
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

void RoundPlaneState::EndStreams(const absl::Status& why) {
  std::set<std::shared_ptr<InboundStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) stream->End(why);
}

absl::StatusOr<FrameSink::Reading> RoundPlaneState::OnMessage(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  absl::StatusOr<Reading> taken = Take(stream, message);
  if (absl::IsInvalidArgument(taken.status())) {
    ++shared_->counters.frames_refused;
  } else if (absl::IsAborted(taken.status())) {
    ++shared_->counters.frames_dropped_old;
  }
  return taken;
}

absl::StatusOr<int64_t> RoundPlaneState::FrameBytes(
    const std::shared_ptr<InboundStream>& /*stream*/,
    absl::Span<const ByteSpan> /*message*/) {
  return kMaxPieceBytes;  // a message of a round is never cut
}

absl::StatusOr<FrameSink::Reading> RoundPlaneState::Take(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  PACELINE_ASSIGN_OR_RETURN(const RoundFrameLayout layout,
                            ParseRoundFrame(message));
  PACELINE_ASSIGN_OR_RETURN(const std::shared_ptr<RoundRun> run,
                            Decide(layout.header));
  if (run == nullptr) return Reading::kHold;
  return run->OnFrame(stream, message, layout);
}

absl::StatusOr<std::shared_ptr<RoundRun>> RoundPlaneState::Decide(
    const RoundFrameHeader& header) {
  const Incarnation wanted{header.to.incarnation};
  const auto another = [&](Incarnation mine) {
    return absl::NotFoundError(
        absl::StrCat("this process is not the one of worker ", header.to.worker,
                     " that is meant: incarnation ", wanted.value, ", here is ",
                     mine.value));
  };
  if (options_.incarnation.value != 0 && wanted != options_.incarnation) {
    return another(options_.incarnation);
  }
  const Fence theirs{JobId{header.job}, header.attempt, header.plan_version};
  absl::MutexLock lock(&mutex_);
  if (run_ != nullptr && theirs == run_->fence()) {
    if (MemberId{WorkerId{header.to.worker}, wanted} == run_->self()) {
      return run_;
    }
    return another(run_->self().incarnation);
  }
  const bool older = (run_ != nullptr && theirs < run_->fence()) ||
                     (closed_.has_value() && theirs <= *closed_);
  if (!older) return nullptr;
  return absl::AbortedError(
      absl::StrCat(ToText(theirs), " is over on this worker"));
}

void RoundPlaneState::OnStreamDone(
    const std::shared_ptr<InboundStream>& stream) {
  std::shared_ptr<RoundRun> run;
  {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
    run = run_;
  }
  if (run != nullptr) run->OnStreamDone(stream);
}

}  // namespace paceline
