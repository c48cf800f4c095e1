#include "worker/rpc/outbound_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/obs/log.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "core/transfer/frame.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "paceline/v1/stage.pb.h"
#include "worker/rpc/frame_buffer.h"

namespace paceline {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
// Frames of at most so many bytes leave in one system call with those behind
// them.
constexpr int64_t kSmallFrame = 32 << 10;
// What a codec changes is measured on one frame of so many.
constexpr int64_t kFramesPerSample = 256;
constexpr char kExchange[] = "/paceline.v1.Stage/Exchange";

EncodedFrame Hello(const OutboundOptions& options, int32_t boundary) {
  Frame frame;
  frame.header.fence = options.fence;
  frame.header.kind = FrameKind::kHello;
  frame.header.route = options.route;
  frame.header.boundary = boundary;
  return EncodeFrame(std::move(frame));
}

}  // namespace

OutboundStream::OutboundStream(OutboundOptions options,
                               std::shared_ptr<PlaneShared> shared)
    : options_(std::move(options)),
      shared_(std::move(shared)),
      channel_(shared_->channels.Make(options_.address)),
      backoff_(kFirstBackoff) {
  for (const auto& [boundary, bound] : options_.bounds) windows_[boundary];
}

OutboundStream::~OutboundStream() = default;

void OutboundStream::Start() { Connect(); }

absl::Status OutboundStream::Send(Frame frame) {
  const FrameKey key = KeyOf(frame.header);
  const int limit = SendLimit(options_.bounds.at(key.boundary));
  {
    absl::MutexLock lock(&mutex_);
    PACELINE_RETURN_IF_ERROR(ended_);
    ResendWindow& window = windows_.at(key.boundary);
    if (window.kept() >= static_cast<size_t>(limit)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot send the ", ToText(key), ": ", window.kept(),
                       " frames are on the way, at most ", limit, " may be"));
    }
    frame.header.sequence = window.Reserve();
  }
  frame.header.fence = options_.fence;
  const int64_t sequence = frame.header.sequence;
  const std::optional<Tensor> sample = SampleOf(frame, sequence);
  EncodedFrame encoded = EncodeFrame(std::move(frame), options_.codec);
  if (sample.has_value()) MeasureError(*sample, encoded.tensors[0]);

  // What a small frame's system call takes is less than waking a thread for it.
  const bool small = encoded.payload_bytes <= kSmallFrame;
  {
    absl::MutexLock lock(&mutex_);
    windows_.at(key.boundary).Fill(sequence, std::move(encoded));
    if (turn_.writing()) return absl::OkStatus();
    if (!small) PostPumpLocked();
  }
  if (small) Pump();
  return absl::OkStatus();
}

std::optional<Tensor> OutboundStream::SampleOf(const Frame& frame,
                                               int64_t sequence) const {
  if (options_.codec == Codec::kRaw || sequence % kFramesPerSample != 0 ||
      frame.tensors.empty() || frame.tensors[0].dtype != DType::kF32) {
    return std::nullopt;
  }
  return frame.tensors[0];
}

void OutboundStream::MeasureError(const Tensor& sample, const Tensor& wire) {
  Tensor decoded = Tensor::Allocate(DType::kF32, sample.shape);
  Decode(options_.codec, wire.As<uint8_t>(), decoded);
  shared_->counters.codec_error =
      RelativeError(sample.As<float>(), decoded.As<float>());
}

absl::StatusOr<absl::Duration> OutboundStream::AwaitRoom(int32_t boundary,
                                                         int frames) {
  absl::MutexLock lock(&mutex_);
  const int wanted = std::min(frames, options_.bounds.at(boundary));
  const ResendWindow& window = windows_.at(boundary);
  const auto room = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !ended_.ok() || window.HasCredit(wanted);
  };
  // First the link: until all that was sent has been received.
  const auto room_or_arrived = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return room() || window.kept() == 0;
  };
  absl::Duration link;
  if (!room_or_arrived()) {
    const absl::Time begin = absl::Now();
    mutex_.Await(absl::Condition(&room_or_arrived));
    link = absl::Now() - begin;
  }
  mutex_.Await(absl::Condition(&room));
  if (!ended_.ok()) return ended_;
  return link;
}

void OutboundStream::Close(const absl::Status& why, bool linger) {
  absl::MutexLock lock(&mutex_);
  // A cancelled run does not wait for what a closed one would.
  const bool first = ended_.ok();
  if (first) ended_ = why;
  draining_ = linger && (first || draining_);
  if (draining_) {
    shared_->timers.RunAt(absl::Now() + shared_->options.linger,
                          [self = shared_from_this()] { self->GiveUp(); });
    PostPumpLocked();
  } else if (call_ != nullptr) {
    call_->Cancel();
  }
}

void OutboundStream::GiveUp() {
  absl::MutexLock lock(&mutex_);
  if (!draining_) return;
  draining_ = false;
  if (call_ != nullptr) call_->Cancel();
}

void OutboundStream::Connect() {
  {
    absl::MutexLock lock(&mutex_);
    const bool needed = ended_.ok() || (draining_ && !NothingKeptLocked());
    if (!needed || call_ != nullptr) return;
    call_ = new OutboundCall(shared_from_this(), shared_, channel_, kExchange);
    hellos_.clear();
    for (const auto& [boundary, window] : windows_) hellos_.push_back(boundary);
    turn_.Reset();
    half_closed_ = established_ = false;
    // Under the lock, so that Close() finds a call that it can cancel.  gRPC
    // does not react on the stack of the one who starts something.
    call_->Start();
  }
  Pump();
}

void OutboundStream::PostPumpLocked() {
  if (pump_posted_ || call_ == nullptr) return;
  pump_posted_ = true;
  shared_->timers.Run([self = shared_from_this()] {
    {
      absl::MutexLock lock(&self->mutex_);
      self->pump_posted_ = false;
    }
    self->Pump();
  });
}

void OutboundStream::Pump() {
  OutboundCall* call = nullptr;
  Next next;
  {
    absl::MutexLock lock(&mutex_);
    call = call_;
    if (call == nullptr || !turn_.CanBegin()) return;
    next = DecideLocked();
    if (next.action == Action::kNothing) return;
    turn_.Begin();
  }
  // Without the lock: it may copy a frame into the kernel.  The call stays
  // until OnWritten().
  if (next.action == Action::kWrite) {
    call->Write(std::move(next.bytes), next.options);
  } else {
    call->StartWritesDone();
  }
}

OutboundStream::Next OutboundStream::DecideLocked() {
  if (!hellos_.empty()) {
    const EncodedFrame hello = Hello(options_, hellos_.back());
    hellos_.pop_back();
    return {Action::kWrite, std::move(ToByteBuffers(hello).front())};
  }
  if (!pieces_.empty()) return TakePieceLocked();
  // The boundary after the last one is the first to be asked.
  auto at = windows_.upper_bound(last_boundary_);
  for (size_t i = 0; i < windows_.size(); ++i, ++at) {
    if (at == windows_.end()) at = windows_.begin();
    const EncodedFrame* frame = at->second.TakeNext();
    if (frame == nullptr) continue;
    last_boundary_ = at->first;
    ++shared_->counters.frames_sent;
    shared_->counters.bytes_sent += frame->payload_bytes;
    pieces_ = ToByteBuffers(*frame);
    Next next = TakePieceLocked();
    if (frame->payload_bytes <= kSmallFrame && FrameReadyLocked()) {
      next.options.set_buffer_hint();
    }
    return next;
  }
  if (draining_ && !half_closed_ && EverythingSentLocked()) {
    half_closed_ = true;
    return {Action::kHalfClose};
  }
  return {};
}

OutboundStream::Next OutboundStream::TakePieceLocked() {
  Next next{Action::kWrite, std::move(pieces_.front())};
  pieces_.pop_front();
  return next;
}

bool OutboundStream::FrameReadyLocked() const {
  return std::any_of(windows_.begin(), windows_.end(),
                     [](const auto& entry) { return entry.second.ready(); });
}

bool OutboundStream::EverythingSentLocked() const {
  return std::all_of(windows_.begin(), windows_.end(), [](const auto& entry) {
    return entry.second.kept() == 0 || entry.second.all_sent();
  });
}

bool OutboundStream::NothingKeptLocked() const {
  return std::all_of(windows_.begin(), windows_.end(), [](const auto& entry) {
    return entry.second.kept() == 0;
  });
}

void OutboundStream::OnRead(grpc::ByteBuffer& message) {
  v1::StageCredit proto;
  if (!grpc::SerializationTraits<v1::StageCredit>::Deserialize(&message, &proto)
           .ok()) {
    return;
  }
  const int32_t boundary = proto.boundary();
  const Credit credit{proto.granted(), proto.received()};
  absl::Status wrong;
  bool back_again = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto window = windows_.find(boundary);
    wrong =
        window == windows_.end()
            ? absl::InvalidArgumentError(absl::StrCat(
                  "a credit for boundary ", boundary, ", which is not ours"))
            : window->second.OnCredit(credit);
    established_ = true;
    backoff_ = kFirstBackoff;
    back_again = std::exchange(break_logged_, false);
  }
  if (back_again) {
    Log(LogLevel::kInfo, "neighbour is connected again",
        {{"neighbour", options_.neighbour.value},
         {"address", options_.address},
         {"direction", FrameKindName(options_.kind)}});
  }
  if (!wrong.ok()) {
    options_.on_refused(absl::Status(
        wrong.code(), absl::StrCat("worker ", options_.neighbour.value, " at ",
                                   options_.address, ": ", wrong.message())));
    return;
  }
  Pump();
}

void OutboundStream::OnWritten(bool ok) {
  OutboundCall* unused = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    call_->Release();
    if (turn_.End(ok)) unused = call_;
  }
  if (unused != nullptr) return unused->RemoveHold();
  Pump();
}

void OutboundStream::OnReadEnded() {
  OutboundCall* unused = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (turn_.EndReads()) unused = call_;
  }
  if (unused != nullptr) unused->RemoveHold();
}

void OutboundStream::OnCallDone(const grpc::Status& grpc_status) {
  const absl::Status status = FromGrpc(grpc_status);
  const std::string where = absl::StrCat("worker ", options_.neighbour.value,
                                         " at ", options_.address);
  bool retry = false;
  bool log = false;
  bool refused = false;
  bool out_of_reach = false;
  {
    absl::MutexLock lock(&mutex_);
    call_ = nullptr;
    out_of_reach = DecideOutOfReachLocked(status);
    retry = !out_of_reach && DecideRetryLocked(status);
    refused = ended_.ok() && absl::IsInvalidArgument(status);
    log = retry && !std::exchange(break_logged_, break_logged_ || retry);
    pieces_.clear();
    for (auto& [boundary, window] : windows_) window.OnBroken();
    if (retry) {
      if (established_) ++shared_->counters.reconnects;
      shared_->timers.RunAt(absl::Now() + backoff_,
                            [self = shared_from_this()] { self->Connect(); });
      backoff_ = std::min(2 * backoff_, kMaxBackoff);
    }
  }
  if (log) {
    Log(LogLevel::kWarn, "neighbour cannot be reached, trying again",
        {{"neighbour", options_.neighbour.value},
         {"address", options_.address},
         {"direction", FrameKindName(options_.kind)},
         {"run", ToText(options_.fence)},
         {"why", status.ToString()}});
  }
  if (refused) {
    options_.on_refused(absl::Status(
        status.code(),
        absl::StrCat(where, " refuses our frames: ", status.message())));
  }
  if (out_of_reach) {
    options_.on_refused(absl::UnavailableError(absl::StrCat(
        where, " could not be reached for ",
        absl::FormatDuration(shared_->options.reach), " (", status.message(),
        "): its --advertise must be an address that every worker can dial")));
  }
}

bool OutboundStream::DecideOutOfReachLocked(const absl::Status& status) {
  if (established_ || !absl::IsUnavailable(status)) {
    out_of_reach_ = absl::InfiniteFuture();
    return false;
  }
  out_of_reach_ = std::min(out_of_reach_, absl::Now());
  return ended_.ok() && absl::Now() - out_of_reach_ >= shared_->options.reach;
}

bool OutboundStream::DecideRetryLocked(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return false;
  if (ended_.ok()) return true;
  // An OK after our half-close says that all was read.
  return draining_ && !(half_closed_ && status.ok()) && !NothingKeptLocked();
}

}  // namespace paceline
