#include "worker/transport/stage/stage_outbound.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/obs/log.h"
#include "core/os/thread.h"
#include "core/transfer/frame.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "paceline/v1/stage.pb.h"
#include "worker/transport/stream/frame_buffer.h"

namespace paceline {
namespace {

constexpr absl::Duration kFirstStageBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMaxStageBackoff = absl::Seconds(2);
// Frames of at most this many bytes leave in one system call with the frames
// behind them.
constexpr int64_t kSmallFrame = 32 << 10;
// One frame in this many is used to measure a codec's error.
constexpr int64_t kFramesPerSample = 256;
constexpr char kStageExchange[] = "/paceline.v1.Stage/Exchange";

EncodedFrame Hello(const OutboundOptions& options, int32_t boundary) {
  Frame frame;
  frame.header.fence = options.fence;
  frame.header.kind = FrameKind::kHello;
  frame.header.route = options.route;
  frame.header.boundary = boundary;
  return EncodeFrame(std::move(frame));
}

}  // namespace

StageOutbound::StageOutbound(OutboundOptions options,
                             std::shared_ptr<PlaneShared> shared)
    : OutboundStream({kStageExchange, options.address, kFirstStageBackoff,
                      kMaxStageBackoff},
                     std::move(shared)),
      options_(std::move(options)) {
  for (const auto& [boundary, bound] : options_.bounds) windows_[boundary];
}

absl::Status StageOutbound::Send(Frame frame) {
  const FrameKey key = KeyOf(frame.header);
  const int limit = SendLimit(options_.bounds.at(key.boundary));
  {
    absl::MutexLock lock(&mutex_);
    PACELINE_RETURN_IF_ERROR(ended_);
    ResendWindow& window = windows_.at(key.boundary);
    if (window.kept() >= static_cast<size_t>(limit)) {
      return ResourceExhausted(
          "cannot send the ", ToText(key), ": ", window.kept(),
          " frames are on the way, at most ", limit, " may be");
    }
    frame.header.sequence = window.Reserve();
  }
  frame.header.fence = options_.fence;
  const int64_t sequence = frame.header.sequence;
  const std::optional<Tensor> sample = SampleOf(frame, sequence);
  EncodedFrame encoded = EncodeFrame(std::move(frame), options_.codec);
  if (sample.has_value()) MeasureError(*sample, encoded.tensors[0]);

  // A small frame's system call costs less than waking a thread for it.
  const bool small = encoded.payload_bytes <= kSmallFrame;
  {
    absl::MutexLock lock(&mutex_);
    windows_.at(key.boundary).Fill(sequence, std::move(encoded));
    if (IsWritingLocked()) return absl::OkStatus();
    if (!small) PumpSoonLocked();
  }
  if (small) Pump();
  return absl::OkStatus();
}

std::optional<Tensor> StageOutbound::SampleOf(const Frame& frame,
                                              int64_t sequence) const {
  if (options_.codec == Codec::kRaw || sequence % kFramesPerSample != 0 ||
      frame.tensors.empty() || frame.tensors[0].dtype != DType::kF32) {
    return std::nullopt;
  }
  return frame.tensors[0];
}

void StageOutbound::MeasureError(const Tensor& sample, const Tensor& wire) {
  Tensor decoded = Tensor::Allocate(DType::kF32, sample.shape);
  Decode(options_.codec, wire.As<uint8_t>(), decoded);
  shared_->counters.codec_error =
      RelativeError(sample.As<float>(), decoded.As<float>());
}

absl::StatusOr<absl::Duration> StageOutbound::AwaitRoom(int32_t boundary,
                                                        int frames) {
  absl::MutexLock lock(&mutex_);
  const int wanted = std::min(frames, options_.bounds.at(boundary));
  const ResendWindow& window = windows_.at(boundary);
  const auto room = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !ended_.ok() || window.HasCredit(wanted);
  };
  // The first wait is for the link: until all sent frames have been received.
  const auto room_or_arrived = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return room() || window.kept() == 0;
  };
  absl::Duration link;
  if (!room_or_arrived()) {
    const Instant begin = SteadyNow();
    mutex_.Await(absl::Condition(&room_or_arrived));
    link = SteadyNow() - begin;
  }
  mutex_.Await(absl::Condition(&room));
  if (!ended_.ok()) return ended_;
  return link;
}

void StageOutbound::Close(const absl::Status& why, bool linger) {
  absl::MutexLock lock(&mutex_);
  if (ended_.ok()) ended_ = why;
  // CloseLocked() ignores linger after a cancel.
  CloseLocked(linger);
}

void StageOutbound::OnConnectLocked() {
  hellos_.clear();
  for (const auto& [boundary, window] : windows_) hellos_.push_back(boundary);
  half_closed_ = false;
}

std::optional<OutboundStream::Next> StageOutbound::TakeNextLocked() {
  if (!hellos_.empty()) {
    const EncodedFrame hello = Hello(options_, hellos_.back());
    hellos_.pop_back();
    return Next{std::move(ToByteBuffers(hello).front())};
  }
  if (!chunks_.empty()) return TakeChunkLocked();
  // Start at the boundary after the last one.
  auto at = windows_.upper_bound(last_boundary_);
  for (size_t i = 0; i < windows_.size(); ++i, ++at) {
    if (at == windows_.end()) at = windows_.begin();
    const EncodedFrame* frame = at->second.TakeNext();
    if (frame == nullptr) continue;
    last_boundary_ = at->first;
    ++shared_->counters.frames_sent;
    shared_->counters.bytes_sent += frame->payload_bytes;
    sent_bytes_ += frame->payload_bytes;
    chunks_ = ToByteBuffers(*frame);
    Next next = TakeChunkLocked();
    if (frame->payload_bytes <= kSmallFrame && FrameReadyLocked()) {
      next.options.set_buffer_hint();
    }
    return next;
  }
  if (need() != Need::kDraining || half_closed_ || !EverythingSentLocked()) {
    return std::nullopt;
  }
  half_closed_ = true;
  return Next{.half_close = true};
}

OutboundStream::Next StageOutbound::TakeChunkLocked() {
  Next next{std::move(chunks_.front())};
  chunks_.pop_front();
  return next;
}

bool StageOutbound::FrameReadyLocked() const {
  return std::ranges::any_of(
      windows_, [](const auto& entry) { return entry.second.ready(); });
}

bool StageOutbound::IsSending() const {
  absl::MutexLock lock(&mutex_);
  return ended_.ok() && (IsWritingLocked() || FrameReadyLocked());
}

bool StageOutbound::EverythingSentLocked() const {
  return std::ranges::all_of(windows_, [](const auto& entry) {
    return entry.second.kept() == 0 || entry.second.all_sent();
  });
}

bool StageOutbound::HasRestLocked() const {
  return std::ranges::any_of(
      windows_, [](const auto& entry) { return entry.second.kept() > 0; });
}

void StageOutbound::OnMessage(grpc::ByteBuffer& message) {
  v1::StageCredit proto;
  if (!grpc::SerializationTraits<v1::StageCredit>::Deserialize(&message, &proto)
           .ok()) {
    return;
  }
  const int32_t boundary = proto.boundary();
  const Credit credit{proto.granted(), proto.received()};
  absl::Status wrong;
  bool back_again = false;
  bool was_broken = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto window = windows_.find(boundary);
    wrong = window == windows_.end()
                ? InvalidArgument("a credit for boundary ", boundary,
                                  ", which is not ours")
                : window->second.OnCredit(credit);
    AnsweredLocked(/*reset_backoff=*/true);
    back_again = std::exchange(break_logged_, false);
    was_broken = std::exchange(broken_since_, std::nullopt).has_value();
    dial_refused_ = false;
  }
  if (was_broken) options_.on_link();
  if (back_again) {
    Log(LogLevel::kInfo, "neighbour is connected again",
        {{"neighbour", options_.neighbour.value},
         {"address", options_.address},
         {"direction", FrameKindName(options_.kind)}});
  }
  if (!wrong.ok()) return Refuse(wrong, "");
  Pump();
}

// Ends the run with the neighbour's message.
void StageOutbound::Refuse(const absl::Status& why,
                           absl::string_view what) const {
  options_.on_refused(absl::Status(
      why.code(), absl::StrCat("worker ", options_.neighbour.value, " at ",
                               options_.address, what, ": ", why.message())));
}

OutboundStream::Ended StageOutbound::OnEndedLocked(const absl::Status& status,
                                                   bool answered) {
  chunks_.clear();
  for (auto& [boundary, window] : windows_) window.OnBroken();
  if (absl::IsInvalidArgument(status)) {
    if (!ended_.ok()) return {};
    return {false, [this, status] { Refuse(status, " refuses our frames"); }};
  }
  if (IsOutOfReachLocked(status, answered)) {
    return {false, [this, status] {
              options_.on_refused(Unavailable(
                  "worker ", options_.neighbour.value, " at ", options_.address,
                  " could not be reached for ",
                  absl::FormatDuration(shared_->options.reach), " (",
                  status.message(),
                  "): its --advertise must be an address that every worker can "
                  "dial"));
            }};
  }
  // OK after our half-close means that the neighbour has read all.
  const bool changed = NoteBreakLocked(status);
  const bool retry =
      need() == Need::kOpen || (need() == Need::kDraining && HasRestLocked() &&
                                !(half_closed_ && status.ok()));
  if (!retry) return {};
  if (answered) ++shared_->counters.reconnects;
  const bool logged = std::exchange(break_logged_, true);
  return {true, [this, status, changed, logged] {
            if (changed) options_.on_link();
            if (logged) return;
            Log(LogLevel::kWarn, "neighbour cannot be reached, trying again",
                {{"neighbour", options_.neighbour.value},
                 {"address", options_.address},
                 {"direction", FrameKindName(options_.kind)},
                 {"run", ToText(options_.fence)},
                 {"why", status.ToString()}});
          }};
}

bool StageOutbound::NoteBreakLocked(const absl::Status& status) {
  // Any other status comes from the neighbour itself.
  if (!absl::IsUnavailable(status)) return false;
  const bool refused = dial_refused_ || IsRefusedDial(status);
  const bool changed = !broken_since_.has_value() || refused != dial_refused_;
  if (!broken_since_.has_value()) broken_since_ = SteadyNow();
  dial_refused_ = refused;
  return changed;
}

std::optional<BrokenLink> StageOutbound::broken() const {
  absl::MutexLock lock(&mutex_);
  if (!broken_since_.has_value() || !ended_.ok()) return std::nullopt;
  // At least 1 ms, since 0 would mean that the link is not broken.
  return BrokenLink{
      options_.neighbour,
      std::max(SteadyNow() - *broken_since_, absl::Milliseconds(1)),
      dial_refused_};
}

bool StageOutbound::IsOutOfReachLocked(const absl::Status& status,
                                       bool answered) {
  if (answered || !absl::IsUnavailable(status)) {
    out_of_reach_.reset();
    return false;
  }
  const Instant now = SteadyNow();
  if (!out_of_reach_.has_value()) out_of_reach_ = now;
  return ended_.ok() && now - *out_of_reach_ >= shared_->options.reach;
}

}  // namespace paceline
