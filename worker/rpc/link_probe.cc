#include "worker/rpc/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/rpc/call_deadline.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "grpcpp/client_context.h"
#include "worker/cpu_time.h"

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
// As the answering side sees it.
constexpr absl::Duration kLongestProbe = absl::Seconds(60);

// One message is answered before the next is read, so a peer can make this
// hold at most one answer.
class ProbeReactor final : public grpc::ServerBidiReactor<Message, Message> {
 public:
  ProbeReactor(grpc::CallbackServerContext& context,
               absl::StatusOr<std::unique_ptr<StrangerLimit::Place>> place)
      : place_(std::move(place)),
        deadline_(kLongestProbe, [&context] { context.TryCancel(); }) {
    if (place_.ok()) {
      StartRead(&request_);
    } else {
      Finish(ToGrpc(place_.status()));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (request_.reply_bytes() < 0 ||
        request_.reply_bytes() > kMostReplyBytes) {
      return Finish(ToGrpc(absl::InvalidArgumentError(
          absl::StrCat("a probe asks for an answer of ", request_.reply_bytes(),
                       " bytes, at most ", kMostReplyBytes, " are given"))));
    }
    reply_.mutable_payload()->resize(request_.reply_bytes());
    reply_.set_cpu_seconds(absl::ToDoubleSeconds(ProcessCpuTime()));
    StartWrite(&reply_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const absl::StatusOr<std::unique_ptr<StrangerLimit::Place>> place_;
  Message request_;
  Message reply_;
  CallDeadline deadline_;
};

// What a transfer took.
struct Transfer {
  double seconds = 0;
  double here_cpu_seconds = 0;  // of this process
  double peer_cpu_seconds = 0;
};

// The asking side's stream.
class Probe {
 public:
  Probe(const LinkTarget& target, const CancelToken& cancel)
      : target_(target),
        cancel_(cancel),
        stub_(v1::Stage::NewStub(MakeChannel(target.address))) {
    context_.set_deadline(std::chrono::system_clock::now() + kDeadline);
    stream_ = stub_->Probe(&context_);
  }
  ~Probe() { context_.TryCancel(); }

  absl::StatusOr<double> LatencySeconds();
  // Messages of payload_bytes, answered by reply_bytes: what each byte of the
  // larger took.
  absl::StatusOr<Transfer> OfAByte(int32_t payload_bytes, int32_t reply_bytes,
                                   double round_trip_seconds);

 private:
  // Sends `count` and then reads as many answers.
  absl::StatusOr<Transfer> Exchange(int64_t count, int32_t payload_bytes,
                                    int32_t reply_bytes);
  absl::Status Why();
  // The other side may be anybody, and the coordinator would refuse a number
  // that is none as ours.
  absl::Status CheckReply(const Message& reply) const;

  const LinkTarget& target_;
  const CancelToken& cancel_;
  const std::unique_ptr<v1::Stage::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Message, Message>> stream_;
  double peer_cpu_seconds_ = 0;  // as the last answer said
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

absl::Status Probe::CheckReply(const Message& reply) const {
  if (std::isfinite(reply.cpu_seconds()) && reply.cpu_seconds() >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the link to ", target_.name, " (", target_.address,
                   ") cannot be measured: it says that its process took ",
                   reply.cpu_seconds(),
                   " CPU seconds, need a finite number that is not negative"));
}

absl::StatusOr<Transfer> Probe::Exchange(int64_t count, int32_t payload_bytes,
                                         int32_t reply_bytes) {
  Message request;
  request.mutable_payload()->resize(payload_bytes);
  request.set_reply_bytes(reply_bytes);
  Message reply;
  // Answers are read while the rest is written: neither side's window may
  // fill up with what nobody takes.
  constexpr int64_t kAhead = 16;
  const SystemClock clock;
  const absl::Duration cpu = ProcessCpuTime();
  const double peer_cpu_seconds = peer_cpu_seconds_;
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
  PACELINE_RETURN_IF_ERROR(CheckReply(reply));
  peer_cpu_seconds_ = std::max(peer_cpu_seconds, reply.cpu_seconds());
  return Transfer{absl::ToDoubleSeconds(clock.Now() - begin),
                  absl::ToDoubleSeconds(ProcessCpuTime() - cpu),
                  peer_cpu_seconds_ - peer_cpu_seconds};
}

absl::StatusOr<double> Probe::LatencySeconds() {
  std::vector<double> round_trips;
  for (int i = 0; i < kWarmUps + kRoundTrips; ++i) {
    PACELINE_ASSIGN_OR_RETURN(const Transfer transfer, Exchange(1, 0, 0));
    if (i >= kWarmUps) round_trips.push_back(transfer.seconds);
  }
  std::sort(round_trips.begin(), round_trips.end());
  return round_trips[round_trips.size() / 2] / 2;
}

absl::StatusOr<Transfer> Probe::OfAByte(int32_t payload_bytes,
                                        int32_t reply_bytes,
                                        double round_trip_seconds) {
  const int64_t bytes_each = std::max(payload_bytes, reply_bytes);
  for (int64_t count = 4;; count *= 2) {
    PACELINE_ASSIGN_OR_RETURN(const Transfer all,
                              Exchange(count, payload_bytes, reply_bytes));
    if (all.seconds < kLongEnoughSeconds &&
        2 * count * bytes_each <= kMostBytes) {
      continue;
    }
    const double bytes = static_cast<double>(count * bytes_each);
    return Transfer{
        std::max(all.seconds - round_trip_seconds, all.seconds / 2) / bytes,
        all.here_cpu_seconds / bytes, all.peer_cpu_seconds / bytes};
  }
}

}  // namespace

grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* AnswerProbe(
    grpc::CallbackServerContext& context, StrangerLimit& strangers) {
  return new ProbeReactor(context, strangers.Enter(context.peer()));
}

absl::StatusOr<std::vector<LinkMeasurement>> ProbeLink(
    const std::string& self, const LinkTarget& target,
    const CancelToken& cancel) {
  Probe probe(target, cancel);
  LinkMeasurement there{.from = self, .to = target.name};
  LinkMeasurement back{.from = target.name, .to = self};
  PACELINE_ASSIGN_OR_RETURN(there.latency_seconds, probe.LatencySeconds());
  back.latency_seconds = there.latency_seconds;
  const double round_trip = 2 * there.latency_seconds;
  PACELINE_ASSIGN_OR_RETURN(Transfer byte,
                            probe.OfAByte(kChunkBytes, 0, round_trip));
  there.bytes_per_second = 1 / byte.seconds;
  there.send_cpu_seconds_per_byte = byte.here_cpu_seconds;
  there.receive_cpu_seconds_per_byte = byte.peer_cpu_seconds;
  PACELINE_ASSIGN_OR_RETURN(byte, probe.OfAByte(0, kChunkBytes, round_trip));
  back.bytes_per_second = 1 / byte.seconds;
  back.send_cpu_seconds_per_byte = byte.peer_cpu_seconds;
  back.receive_cpu_seconds_per_byte = byte.here_cpu_seconds;
  return std::vector<LinkMeasurement>{there, back};
}

}  // namespace paceline
