#include "worker/rpc/plane_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/rpc/convert.h"

namespace paceline {

// Closes the run when both of its ends are dropped, which share it.
class PlaneState::OpenRun {
 public:
  OpenRun(std::shared_ptr<PlaneState> plane, Run run)
      : plane_(std::move(plane)), run_(std::move(run)) {}
  ~OpenRun() { plane_->Close(run_); }

  RunState& state() const { return *run_.state; }
  RunGate& gate() const { return *run_.gate; }

 private:
  const std::shared_ptr<PlaneState> plane_;
  const Run run_;
};

class PlaneState::RpcLink final : public Link {
 public:
  explicit RpcLink(std::shared_ptr<OpenRun> run) : run_(std::move(run)) {}

  absl::Status Send(Frame frame) override {
    return run_->state().Send(std::move(frame));
  }
  absl::StatusOr<Frame> Receive(const FrameKey& key) override {
    return run_->state().Receive(key);
  }
  absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary,
                                       int64_t ordinal) override {
    return run_->state().AwaitBatch(boundary, ordinal);
  }
  absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary, int64_t ordinal,
                                           int frames) override {
    return run_->state().AwaitRoom(boundary, ordinal, frames);
  }
  void Cancel(absl::Status why) override { run_->state().Cancel(why); }

 private:
  const std::shared_ptr<OpenRun> run_;
};

class PlaneState::RpcGateClient final : public GateClient {
 public:
  explicit RpcGateClient(std::shared_ptr<OpenRun> run) : run_(std::move(run)) {}

  absl::StatusOr<StepVerdict> Decide(
      const std::vector<StepReport>& reports) override {
    return run_->gate().Decide(reports);
  }
  void Cancel(absl::Status why) override { run_->gate().Cancel(why); }

 private:
  const std::shared_ptr<OpenRun> run_;
};

PlaneState::PlaneState(const DataPlaneOptions& options)
    : shared_(std::make_shared<PlaneShared>(options)) {}

absl::StatusOr<RunConnections> PlaneState::Open(const RunWiring& wiring) {
  PACELINE_RETURN_IF_ERROR(CheckWiring(wiring));
  Run run;
  run.gate = std::make_shared<RunGate>(wiring, shared_);
  run.state = std::make_shared<RunState>(
      wiring, shared_,
      [gate = run.gate](const absl::Status& why) { gate->Cancel(why); });
  run.state->Wire();

  std::set<std::shared_ptr<InboundStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    if (shut_down_) return absl::CancelledError("the worker is stopping");
    if (fence_.open) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot open ", ToText(wiring.fence), ": ",
                       ToText(*fence_.open), " is still open"));
    }
    if (fence_.closed && wiring.fence <= *fence_.closed) {
      return absl::AbortedError(
          absl::StrCat("cannot open ", ToText(wiring.fence), ": ",
                       ToText(*fence_.closed), " was open before"));
    }
    fence_.open = wiring.fence;
    run_ = run;
    streams = streams_;
  }
  run.state->Connect();
  for (const auto& stream : streams) stream->Resume();

  const auto open = std::make_shared<OpenRun>(shared_from_this(), run);
  return RunConnections{std::make_unique<RpcLink>(open),
                        std::make_unique<RpcGateClient>(open)};
}

void PlaneState::Close(const Run& run) {
  std::vector<std::weak_ptr<OutboundStream>> lingering = run.state->Close();
  run.gate->Close();
  absl::MutexLock lock(&mutex_);
  std::erase_if(lingering_,
                [](const auto& stream) { return stream.expired(); });
  lingering_.insert(lingering_.end(), lingering.begin(), lingering.end());
  if (run_.state != run.state) return;  // Shutdown() was first
  fence_.closed = std::exchange(fence_.open, std::nullopt);
  run_ = {};
}

absl::Status PlaneState::OpenGate(const Fence& fence, const GateOptions& gate) {
  std::shared_ptr<RunGate> open;
  {
    absl::MutexLock lock(&mutex_);
    if (fence_.open == fence) open = run_.gate;
  }
  if (open == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no run is open for ", ToText(fence)));
  }
  return open->Open(gate);
}

DataPlaneStats PlaneState::stats() const {
  const PlaneCounters& counters = shared_->counters;
  return {counters.frames_sent,        counters.bytes_sent,
          counters.frames_received,    counters.bytes_received,
          counters.frames_dropped_old, counters.frames_dropped_duplicate,
          counters.frames_refused,     counters.checksum_errors,
          counters.reconnects,         counters.codec_error};
}

void PlaneState::Shutdown() {
  const absl::Status why = absl::CancelledError("the worker is stopping");
  Run run;
  std::vector<std::weak_ptr<OutboundStream>> lingering;
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
    lingering.swap(lingering_);
    if (fence_.open) fence_.closed = std::exchange(fence_.open, std::nullopt);
    run = std::exchange(run_, {});
  }
  if (run.state != nullptr) {
    run.state->Cancel(why);
    run.gate->Cancel(why);
    run.gate->Close();
  }
  for (const auto& weak : lingering) {
    if (const auto stream = weak.lock()) stream->Close(why, /*linger=*/false);
  }
  EndStreams(absl::UnavailableError("the worker is stopping"));
  shared_->timers.Stop();
  shared_->channels.AwaitCalls();
}

InboundStream* PlaneState::Accept(const std::string& peer) {
  const auto stream = std::make_shared<InboundStream>(*this, shared_);
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

void PlaneState::EndStreams(const absl::Status& why) {
  std::set<std::shared_ptr<InboundStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) stream->End(why);
}

std::pair<FenceVerdict, PlaneState::Run> PlaneState::Decide(
    const Fence& fence) {
  absl::MutexLock lock(&mutex_);
  const FenceVerdict verdict = DecideFence(fence_, fence);
  return {verdict, verdict == FenceVerdict::kAccept ? run_ : Run{}};
}

absl::StatusOr<FrameSink::Reading> PlaneState::OnMessage(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  absl::StatusOr<FrameLayout> layout = ParseFrame(message);
  if (!layout.ok()) {
    ++shared_->counters.frames_refused;
    return layout.status();
  }
  const auto [verdict, run] = Decide(layout->header.fence);
  switch (verdict) {
    case FenceVerdict::kHoldNewer:
      return Reading::kHold;
    case FenceVerdict::kDropOlder:
      ++shared_->counters.frames_dropped_old;
      return Reading::kGoOn;
    case FenceVerdict::kAccept:
      break;
  }
  absl::Status taken = run.state->OnFrame(stream, message, *std::move(layout));
  if (taken.ok()) return Reading::kGoOn;
  ++(absl::IsDataLoss(taken) ? shared_->counters.checksum_errors
                             : shared_->counters.frames_refused);
  return taken;
}

absl::StatusOr<int64_t> PlaneState::FrameBytes(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message) {
  const absl::StatusOr<FrameLayout> layout = ParseFirstPiece(message);
  if (!layout.ok()) {
    ++shared_->counters.frames_refused;
    return layout.status();
  }
  const Fence& fence = layout->header.fence;
  const auto [verdict, run] = Decide(fence);
  if (verdict != FenceVerdict::kAccept) {
    ++shared_->counters.frames_dropped_old;
    return absl::AbortedError(
        absl::StrCat(ToText(fence), " is not open on this worker"));
  }
  const absl::Status wanted =
      run.state->CheckIncoming(stream, layout->header).status();
  if (!wanted.ok()) {
    ++shared_->counters.frames_refused;
    return wanted;
  }
  return layout->frame_bytes();
}

void PlaneState::OnBurstEnd() {
  std::shared_ptr<RunState> run;
  {
    absl::MutexLock lock(&mutex_);
    run = run_.state;
  }
  if (run != nullptr) run->Flush();
}

void PlaneState::OnStreamDone(const std::shared_ptr<InboundStream>& stream) {
  std::shared_ptr<RunState> run;
  {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
    run = run_.state;
  }
  if (run != nullptr) run->OnStreamDone(stream);
}

void PlaneState::Report(const v1::StepReport& report, GateDesk::Answer answer) {
  const absl::StatusOr<StepReport> parsed = FromProto(report);
  if (!parsed.ok()) return answer(parsed.status());

  const Fence fence{JobId{report.job()}, report.attempt(),
                    report.plan_version()};
  const auto [verdict, run] = Decide(fence);
  switch (verdict) {
    case FenceVerdict::kHoldNewer:
      return answer(absl::FailedPreconditionError(
          absl::StrCat("no order for ", ToText(fence), " has come yet")));
    case FenceVerdict::kDropOlder:
      return answer(absl::AbortedError(
          absl::StrCat(ToText(fence), " is over on this worker")));
    case FenceVerdict::kAccept:
      return run.gate->Report(*parsed, std::move(answer));
  }
}

}  // namespace paceline
