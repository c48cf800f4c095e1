#include "worker/transport/grpc_prober.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "grpcpp/client_context.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/meters/cpu.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {
namespace {

using Message = v1::ProbeMessage;

constexpr int32_t kChunkBytes = 64 << 10;
constexpr int kWarmUps = 3;
constexpr int kRoundTrips = 21;
// A transfer of this length averages over buffers and shapers' bursts.
constexpr double kLongEnoughSeconds = 0.15;
constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr absl::Duration kDeadline = absl::Seconds(50);
// The longest probe for the answering side.
constexpr absl::Duration kLongestProbe = absl::Seconds(60);

// The reactor answers one message before it reads the next, so a peer can make
// it hold at most one answer.
class ProbeReactor final : public grpc::ServerBidiReactor<Message, Message> {
 public:
  ProbeReactor(grpc::CallbackServerContext& context,
               absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place)
      : peer_(context.peer()),
        place_(std::move(place)),
        deadline_(kLongestProbe, [&context] { context.TryCancel(); }) {
    if (place_.ok()) {
      StartRead(&request_);
    } else {
      Finish(ToGrpc(place_.status()));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    Listener::OnMessage(peer_, static_cast<int64_t>(request_.ByteSizeLong()));
    reply_.set_cpu_seconds(absl::ToDoubleSeconds(ProcessCpuTime()));
    StartWrite(&reply_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::string peer_;
  const absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place_;
  Message request_;
  Message reply_;
  CallDeadline deadline_;
};

// The cost of a transfer.
struct Transfer {
  double seconds = 0;
  double here_cpu_seconds = 0;  // of this process
  double peer_cpu_seconds = 0;
};

// The asking side's stream.
class Probe {
 public:
  Probe(const v1::MeasureLink& target, const CancelToken& cancel)
      : target_(target),
        cancel_(cancel),
        stub_(v1::Stage::NewStub(MakeChannel(target.address()))) {
    context_.set_deadline(DeadlineAfter(kDeadline));
    stream_ = stub_->Probe(&context_);
  }
  ~Probe() { context_.TryCancel(); }

  absl::StatusOr<double> LatencySeconds();
  // Returns the cost of each byte of large messages.
  absl::StatusOr<Transfer> OfAByte(double round_trip_seconds);

 private:
  // Sends `count` messages and reads as many answers.
  absl::StatusOr<Transfer> Exchange(int64_t count, int32_t payload_bytes);
  absl::Status Why();
  // The other side may be hostile, and the coordinator would reject a bad
  // number as this worker's.
  absl::Status CheckReply(const Message& reply) const;

  const v1::MeasureLink& target_;
  const CancelToken& cancel_;
  const std::unique_ptr<v1::Stage::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Message, Message>> stream_;
  double peer_cpu_seconds_ = 0;  // from the last answer
  bool reached_ = false;
};

absl::Status Probe::Why() {
  PACELINE_RETURN_IF_ERROR(cancel_.status());
  context_.TryCancel();
  const absl::Status status = FromGrpc(stream_->Finish());
  return absl::Status(
      status.ok() || absl::IsCancelled(status) ? absl::StatusCode::kUnavailable
                                               : status.code(),
      absl::StrCat("cannot dial ", target_.name(), " (", target_.address(), ")",
                   reached_ ? ", which broke off" : "", ": ",
                   status.message()));
}

absl::Status Probe::CheckReply(const Message& reply) const {
  if (std::isfinite(reply.cpu_seconds()) && reply.cpu_seconds() >= 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "the link to ", target_.name(), " (", target_.address(),
      ") cannot be measured: it says that its process took ",
      reply.cpu_seconds(),
      " CPU seconds, need a finite number that is not negative");
}

absl::StatusOr<Transfer> Probe::Exchange(int64_t count, int32_t payload_bytes) {
  Message request;
  request.mutable_payload()->resize(payload_bytes);
  Message reply;
  // Answers are read while the rest is written: otherwise both sides' flow
  // control windows could fill up.
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
    reached_ = true;
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
    PACELINE_ASSIGN_OR_RETURN(const Transfer transfer, Exchange(1, 0));
    if (i >= kWarmUps) round_trips.push_back(transfer.seconds);
  }
  std::sort(round_trips.begin(), round_trips.end());
  return round_trips[round_trips.size() / 2] / 2;
}

absl::StatusOr<Transfer> Probe::OfAByte(double round_trip_seconds) {
  for (int64_t count = 4;; count *= 2) {
    PACELINE_ASSIGN_OR_RETURN(const Transfer all, Exchange(count, kChunkBytes));
    if (all.seconds < kLongEnoughSeconds &&
        2 * count * kChunkBytes <= kMostBytes) {
      continue;
    }
    const double bytes = static_cast<double>(count * kChunkBytes);
    return Transfer{
        std::max(all.seconds - round_trip_seconds, all.seconds / 2) / bytes,
        all.here_cpu_seconds / bytes, all.peer_cpu_seconds / bytes};
  }
}

}  // namespace

grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* AnswerProbe(
    grpc::CallbackServerContext& context, StreamLimit& strangers) {
  return new ProbeReactor(context, strangers.Enter(context.peer()));
}

absl::StatusOr<LinkMeasurement> GrpcProber::ProbeLink(
    const std::string& self, const v1::MeasureLink& target,
    const CancelToken& cancel) {
  if (IsOwnAddress(target.address(), bound_, advertised_)) {
    return FailedPrecondition("cannot dial ", target.name(), " (",
                              target.address(), "), which is the address of ",
                              self, " itself: start ", target.name(),
                              " with --advertise HOST:PORT");
  }
  Probe probe(target, cancel);
  LinkMeasurement link{.from = self, .to = target.name()};
  PACELINE_ASSIGN_OR_RETURN(link.latency_seconds, probe.LatencySeconds());
  PACELINE_ASSIGN_OR_RETURN(const Transfer byte,
                            probe.OfAByte(2 * link.latency_seconds));
  link.bytes_per_second = 1 / byte.seconds;
  link.send_cpu_seconds_per_byte = byte.here_cpu_seconds;
  link.receive_cpu_seconds_per_byte = byte.peer_cpu_seconds;
  return link;
}
namespace {

constexpr int kFrameWarmUps = 10;
constexpr int kRounds = 60;
constexpr int64_t kSmallFloats = 1 << 10;  // 4 KiB
constexpr int64_t kLargeFloats = 1 << 17;  // 512 KiB
constexpr WorkerId kLeft{1};
constexpr WorkerId kRight{2};

// A data plane with its server.
struct Side {
  DataPlane plane;
  BoundServer server;
  RunConnections run;

  ~Side() {
    run = {};
    plane.Shutdown();
    if (server.server != nullptr) server.server->Shutdown();
  }
  absl::Status Start() {
    PACELINE_ASSIGN_OR_RETURN(
        server, StartServer({.listen = "127.0.0.1:0"}, {plane.service()}));
    return absl::OkStatus();
  }
  std::string address() const {
    return absl::StrCat("127.0.0.1:", server.port);
  }
};

// Two stages, one boundary.
class Pair {
 public:
  explicit Pair(const CancelToken& cancel) : cancel_(cancel) {}

  absl::Status Start() {
    PACELINE_RETURN_IF_ERROR(left_.Start());
    return right_.Start();
  }
  // A new run whose frames have `floats` elements.
  absl::Status Open(int64_t floats);
  // Returns CPU seconds of one round trip, both ends of both frames.
  absl::StatusOr<double> RoundTripSeconds();
  // Returns CPU seconds of one step's reports and verdict, both ends.
  absl::StatusOr<double> GateSeconds();

 private:
  absl::Status RoundTrip(int64_t ordinal);
  absl::Status Pass(Side& from, Side& to, FrameKind kind, int64_t ordinal);

  const CancelToken& cancel_;
  Side left_;
  Side right_;
  int64_t attempt_ = 0;
  int64_t floats_ = 0;
};

absl::Status Pair::Open(int64_t floats) {
  floats_ = floats;
  RunWiring wiring;
  wiring.fence = {JobId{1}, ++attempt_, 1};
  wiring.stages = {{{{kLeft, left_.address()}}, {}},
                   {{{kRight, right_.address()}}, {}}};
  wiring.boundaries = {{{DType::kF32, {floats}}}};
  wiring.micro_batch = 1;
  wiring.bounds.activation_frames = {2};
  wiring.bounds.gradient_frames = {2};
  for (const auto& [side, self] :
       {std::pair(&left_, kLeft), std::pair(&right_, kRight)}) {
    side->run = {};
    wiring.self = self;
    PACELINE_ASSIGN_OR_RETURN(side->run, side->plane.Open(wiring));
  }
  TrainSpec train;
  return left_.plane.OpenGate(wiring.fence, {train, kRounds + kFrameWarmUps});
}

absl::Status Pair::Pass(Side& from, Side& to, FrameKind kind, int64_t ordinal) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.boundary = 0;
  frame.header.batch.ordinal = ordinal;
  frame.header.batch.samples = 1;
  frame.tensors = {Tensor::Zeros(DType::kF32, {1, floats_})};
  if (kind == FrameKind::kActivation) {
    frame.tensors.push_back(Tensor::Zeros(DType::kI64, {1}));
  }
  PACELINE_RETURN_IF_ERROR(from.run.link->Send(std::move(frame)));
  return to.run.link->Receive({kind, 0, ordinal, 0}).status();
}

absl::Status Pair::RoundTrip(int64_t ordinal) {
  PACELINE_RETURN_IF_ERROR(cancel_.status());
  PACELINE_RETURN_IF_ERROR(
      Pass(left_, right_, FrameKind::kActivation, ordinal));
  return Pass(right_, left_, FrameKind::kGradient, ordinal);
}

absl::StatusOr<double> Pair::RoundTripSeconds() {
  int64_t ordinal = 0;
  while (ordinal < kFrameWarmUps) {
    PACELINE_RETURN_IF_ERROR(RoundTrip(ordinal++));
  }
  const absl::Duration before = ProcessCpuTime();
  while (ordinal < kFrameWarmUps + kRounds) {
    PACELINE_RETURN_IF_ERROR(RoundTrip(ordinal++));
  }
  return absl::ToDoubleSeconds(ProcessCpuTime() - before) / kRounds;
}

absl::StatusOr<double> Pair::GateSeconds() {
  const auto decide = [](Side& side, int stage) {
    for (int64_t step = 0; step < kRounds; ++step) {
      StepReport report;
      report.step = step;
      report.stage = stage;
      report.samples = 1;
      report.squared_norms = {1};
      PACELINE_RETURN_IF_ERROR(side.run.gate->Decide({report}).status());
    }
    return absl::OkStatus();
  };
  const absl::Duration before = ProcessCpuTime();
  absl::Status here, there;
  {
    const Thread right("gate-meter", [&] { there = decide(right_, 1); });
    here = decide(left_, 0);
    if (!here.ok()) right_.run.gate->Cancel(here);
  }
  PACELINE_RETURN_IF_ERROR(here);
  PACELINE_RETURN_IF_ERROR(there);
  return absl::ToDoubleSeconds(ProcessCpuTime() - before) / kRounds;
}

}  // namespace

absl::StatusOr<FrameCost> GrpcProber::MeasureFrames(const CancelToken& cancel) {
  constexpr double kEndsOfARoundTrip = 4;  // two frames
  constexpr double kEndsOfAGate = 2;
  Pair pair(cancel);
  PACELINE_RETURN_IF_ERROR(pair.Start());
  PACELINE_RETURN_IF_ERROR(pair.Open(kSmallFloats));
  PACELINE_ASSIGN_OR_RETURN(const double small, pair.RoundTripSeconds());
  PACELINE_ASSIGN_OR_RETURN(const double gate, pair.GateSeconds());
  PACELINE_RETURN_IF_ERROR(pair.Open(kLargeFloats));
  PACELINE_ASSIGN_OR_RETURN(const double large, pair.RoundTripSeconds());
  FrameCost cost;
  cost.seconds_per_byte =
      std::max(0.0, (large - small) / kEndsOfARoundTrip /
                        (sizeof(float) * (kLargeFloats - kSmallFloats)));
  cost.seconds =
      std::max(0.0, small / kEndsOfARoundTrip -
                        cost.seconds_per_byte * sizeof(float) * kSmallFloats);
  cost.gate_seconds = gate / kEndsOfAGate;
  return cost;
}

namespace {

bool IsEveryAddress(const std::string& host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

}  // namespace

absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& bound) {
  PACELINE_ASSIGN_OR_RETURN(const HostPort listens, ParseHostPort(bound));
  HostPort result = listens;
  if (!advertise.empty()) {
    PACELINE_ASSIGN_OR_RETURN(result, ParseHostPort(advertise));
    if (result.port == 0) result.port = listens.port;
  }
  if (IsEveryAddress(result.host)) result.host.clear();
  return JoinHostPort(result.host, result.port);
}

bool IsOwnAddress(const std::string& address, const std::string& bound,
                  const std::string& advertised) {
  if (address == advertised || address == bound) return true;
  const absl::StatusOr<HostPort> dialled = ParseHostPort(address);
  const absl::StatusOr<HostPort> listens = ParseHostPort(bound);
  return dialled.ok() && listens.ok() && dialled->port == listens->port &&
         IsLoopback(dialled->host) &&
         (IsLoopback(listens->host) || IsEveryAddress(listens->host));
}

}  // namespace paceline
