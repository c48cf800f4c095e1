#include "worker/rpc/frame_meter.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/thread.h"
#include "core/rpc/channel.h"
#include "worker/cpu_time.h"
#include "worker/rpc/data_plane.h"

namespace paceline {
namespace {

constexpr int kWarmUps = 10;
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

Tensor Zeros(DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::Allocate(dtype, shape);
  std::memset(tensor.data.get(), 0, tensor.bytes());
  return tensor;
}

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
  // CPU seconds of one round trip, both ends of both frames.
  absl::StatusOr<double> RoundTripSeconds();
  // CPU seconds of one step's reports and verdict, both ends.
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
  return left_.plane.OpenGate(wiring.fence, {train, kRounds + kWarmUps});
}

absl::Status Pair::Pass(Side& from, Side& to, FrameKind kind, int64_t ordinal) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.boundary = 0;
  frame.header.batch.ordinal = ordinal;
  frame.header.batch.samples = 1;
  frame.tensors = {Zeros(DType::kF32, {1, floats_})};
  if (kind == FrameKind::kActivation) {
    frame.tensors.push_back(Zeros(DType::kI64, {1}));
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
  while (ordinal < kWarmUps) {
    PACELINE_RETURN_IF_ERROR(RoundTrip(ordinal++));
  }
  const absl::Duration before = ProcessCpuTime();
  while (ordinal < kWarmUps + kRounds) {
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

absl::StatusOr<FrameCost> MeasureFrameCost(const CancelToken& cancel) {
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

}  // namespace paceline
