#include "worker/rpc/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "grpcpp/client_context.h"

namespace paceline {
namespace {

using Message = v1::ProbeMessage;

constexpr int32_t kMostReplyBytes = 1 << 20;
constexpr int32_t kChunkBytes = 64 << 10;
constexpr int kWarmUps = 3;
constexpr int kRoundTrips = 21;
// A transfer that takes this long averages over buffers and shapers' bursts.
constexpr double kLongEnoughSeconds = 0.15;
constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr auto kDeadline = std::chrono::seconds(50);

// One message is answered before the next is read, so a peer can make this
// hold at most one answer.
class ProbeReactor final : public grpc::ServerBidiReactor<Message, Message> {
 public:
  ProbeReactor() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (request_.reply_bytes() < 0 ||
        request_.reply_bytes() > kMostReplyBytes) {
      return Finish(ToGrpc(absl::InvalidArgumentError(
          absl::StrCat("a probe asks for an answer of ", request_.reply_bytes(),
                       " bytes, at most ", kMostReplyBytes, " are given"))));
    }
    reply_.mutable_payload()->resize(request_.reply_bytes());
    StartWrite(&reply_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  Message request_;
  Message reply_;
};

// The asking side's stream.
class Probe {
 public:
  Probe(const LinkTarget& target, const CancelToken& cancel)
      : target_(target),
        cancel_(cancel),
        stub_(
            v1::Stage::NewStub(MakeChannel(target.address, kMaxMessageBytes))) {
    context_.set_deadline(std::chrono::system_clock::now() + kDeadline);
    stream_ = stub_->Probe(&context_);
  }
  ~Probe() { context_.TryCancel(); }

  absl::StatusOr<double> LatencySeconds();
  // Bytes a second of messages of payload_bytes, answered by reply_bytes.
  absl::StatusOr<double> Bandwidth(int32_t payload_bytes, int32_t reply_bytes,
                                   double round_trip_seconds);

 private:
  // Sends `count` and then reads as many answers.
  absl::StatusOr<double> SecondsOf(int64_t count, int32_t payload_bytes,
                                   int32_t reply_bytes);
  absl::Status Why();

  const LinkTarget& target_;
  const CancelToken& cancel_;
  const std::unique_ptr<v1::Stage::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Message, Message>> stream_;
};

absl::Status Probe::Why() {
  PACELINE_RETURN_IF_ERROR(cancel_.status());
  context_.TryCancel();
  const absl::Status status = FromGrpc(stream_->Finish());
  return absl::Status(
      status.ok() || absl::IsCancelled(status) ? absl::StatusCode::kUnavailable
                                               : status.code(),
      absl::StrCat("the link to ", target_.name, " (", target_.address,
                   ") broke while it was measured: ", status.message()));
}

absl::StatusOr<double> Probe::SecondsOf(int64_t count, int32_t payload_bytes,
                                        int32_t reply_bytes) {
  Message request;
  request.mutable_payload()->resize(payload_bytes);
  request.set_reply_bytes(reply_bytes);
  Message reply;
  // Answers are read while the rest is written: neither side's window may
  // fill up with what nobody takes.
  constexpr int64_t kAhead = 16;
  const SystemClock clock;
  const Instant begin = clock.Now();
  for (int64_t written = 0, read = 0; read < count;) {
    if (written < count && written - read < kAhead) {
      if (!stream_->Write(request)) return Why();
      ++written;
      continue;
    }
    PACELINE_RETURN_IF_ERROR(cancel_.status());
    if (!stream_->Read(&reply)) return Why();
    ++read;
  }
  return absl::ToDoubleSeconds(clock.Now() - begin);
}

absl::StatusOr<double> Probe::LatencySeconds() {
  std::vector<double> round_trips;
  for (int i = 0; i < kWarmUps + kRoundTrips; ++i) {
    PACELINE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(1, 0, 0));
    if (i >= kWarmUps) round_trips.push_back(seconds);
  }
  std::sort(round_trips.begin(), round_trips.end());
  return round_trips[round_trips.size() / 2] / 2;
}

absl::StatusOr<double> Probe::Bandwidth(int32_t payload_bytes,
                                        int32_t reply_bytes,
                                        double round_trip_seconds) {
  const int64_t bytes_each = std::max(payload_bytes, reply_bytes);
  for (int64_t count = 4;; count *= 2) {
    PACELINE_ASSIGN_OR_RETURN(const double seconds,
                              SecondsOf(count, payload_bytes, reply_bytes));
    if (seconds < kLongEnoughSeconds && 2 * count * bytes_each <= kMostBytes) {
      continue;
    }
    const double bytes = static_cast<double>(count * bytes_each);
    return bytes / std::max(seconds - round_trip_seconds, seconds / 2);
  }
}

}  // namespace

grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* AnswerProbe() {
  return new ProbeReactor;
}

absl::StatusOr<std::vector<LinkMeasurement>> ProbeLink(
    const std::string& self, const LinkTarget& target,
    const CancelToken& cancel) {
  Probe probe(target, cancel);
  LinkMeasurement there{self, target.name, 0, 0, 0};
  LinkMeasurement back{target.name, self, 0, 0, 0};
  PACELINE_ASSIGN_OR_RETURN(there.latency_seconds, probe.LatencySeconds());
  back.latency_seconds = there.latency_seconds;
  const double round_trip = 2 * there.latency_seconds;
  PACELINE_ASSIGN_OR_RETURN(there.bytes_per_second,
                            probe.Bandwidth(kChunkBytes, 0, round_trip));
  PACELINE_ASSIGN_OR_RETURN(back.bytes_per_second,
                            probe.Bandwidth(0, kChunkBytes, round_trip));
  return std::vector<LinkMeasurement>{there, back};
}

}  // namespace paceline
