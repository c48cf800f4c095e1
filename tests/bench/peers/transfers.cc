#include "tests/bench/peers/transfers.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/enrol.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"
#include "core/rpc/tls.h"
#include "core/trust/certificates.h"
#include "grpcpp/generic/generic_stub.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/bench/cpu_seconds.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {
namespace {

// The boundary's bound, in bytes: both frame sizes may have as much on the way.
// Below about 1 MiB small frames wait for credits.
constexpr int64_t kBoundBytes = 4 << 20;

int BoundOf(const TransferSpec& spec) {
  return static_cast<int>(kBoundBytes / spec.frame_bytes);
}

int TradePorts(int mine) {
  std::printf("%d\n", mine);
  std::fflush(stdout);
  int theirs = 0;
  PACELINE_CHECK(std::scanf("%d", &theirs) == 1, "no port");
  return theirs;
}

void AwaitDone() {
  char word[8];
  PACELINE_CHECK(std::scanf("%7s", word) == 1, "no end");
}

// `receive` takes all frames; it calls its argument at the first.
void TimeReceiver(const std::function<void(std::function<void()>)>& receive) {
  const double cpu = CpuSeconds();
  Instant start;
  receive([&start] { start = SteadyNow(); });
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - start);
  std::printf("%.6f %.6f\n", seconds, CpuSeconds() - cpu);
  std::fflush(stdout);
  AwaitDone();
}

void TimeSender(const std::function<void()>& send) {
  const double cpu = CpuSeconds();
  send();
  AwaitDone();
  std::printf("%.6f\n", CpuSeconds() - cpu);
  std::fflush(stdout);
}

BoundServer Serve(grpc::Service* service) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  auto server = StartServer(options, {service});
  PACELINE_CHECK(server.ok(), server.status().ToString());
  return *std::move(server);
}

std::string Local(int port) { return absl::StrCat("127.0.0.1:", port); }

// --- the data plane ---------------------------------------------------------

// One sample of a float32 activation, without the label's 8 bytes.
Frame PlaneFrame(const TransferSpec& spec) {
  Frame frame;
  frame.tensors = {Tensor::Allocate(DType::kF32, {1, spec.frame_bytes / 4 - 2}),
                   Tensor::Allocate(DType::kI64, {1})};
  for (Tensor& tensor : frame.tensors) {
    std::memset(tensor.data.get(), 1, tensor.bytes());
  }
  return frame;
}

FrameHeader HeaderOf(int64_t frame, int bound) {
  FrameHeader header;
  header.batch = {frame / bound, BatchPhase::kTrain, 0, bound, bound, false};
  header.micro_batch = static_cast<int32_t>(frame % bound);
  return header;
}

void RunPlane(bool send, const TransferSpec& spec) {
  DataPlane plane;
  BoundServer server = Serve(plane.service());
  const int other = TradePorts(server.port);
  RunWiring wiring;
  wiring.fence = {JobId{1}, 1, 1};
  wiring.self = WorkerId{send ? 0 : 1};
  wiring.stages = {{{{WorkerId{0}, Local(send ? server.port : other)}}, {}},
                   {{{WorkerId{1}, Local(send ? other : server.port)}}, {}}};
  wiring.boundaries = {{{DType::kF32, {spec.frame_bytes / 4 - 2}}}};
  wiring.micro_batch = 1;
  const int bound = BoundOf(spec);
  wiring.bounds.activation_frames = {bound};
  wiring.bounds.gradient_frames = {bound};
  auto run = plane.Open(wiring);
  PACELINE_CHECK(run.ok(), run.status().ToString());
  Link& link = *run->link;

  if (send) {
    const Frame frame = PlaneFrame(spec);
    PACELINE_CHECK(link.AwaitRoom(0, 0, bound).ok(), "room");
    TimeSender([&] {
      for (int64_t i = 0; i < spec.frames; ++i) {
        PACELINE_CHECK(link.AwaitRoom(0, 0, 1).ok(), "room");
        const absl::Status sent =
            link.Send({HeaderOf(i, bound), frame.tensors});
        PACELINE_CHECK(sent.ok(), sent.ToString());
      }
    });
  } else {
    TimeReceiver([&](const std::function<void()>& first) {
      for (int64_t i = 0; i < spec.frames; ++i) {
        const auto frame = link.Receive(KeyOf(HeaderOf(i, bound)));
        PACELINE_CHECK(frame.ok(), frame.status().ToString());
        if (i == 0) first();
      }
    });
  }
  plane.Shutdown();
  server.server->Shutdown();
}

// --- a bare gRPC stream -----------------------------------------------------

using grpc::ByteBuffer;

class DroppingService final
    : public v1::Stage::WithRawCallbackMethod_Exchange<v1::Stage::Service> {
 public:
  explicit DroppingService(int64_t frames) : frames_(frames) {}

  absl::Notification first;
  absl::Notification last;

 private:
  class Reactor final : public grpc::ServerBidiReactor<ByteBuffer, ByteBuffer> {
   public:
    explicit Reactor(DroppingService& service) : service_(service) {
      StartRead(&message_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      message_.Clear();
      ++count_;
      if (count_ == 1) service_.first.Notify();
      if (count_ == service_.frames_) service_.last.Notify();
      StartRead(&message_);
    }
    void OnDone() override { delete this; }

   private:
    DroppingService& service_;
    ByteBuffer message_;
    int64_t count_ = 0;
  };

  grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    Listener::OnKnown(context->peer());
    return new Reactor(*this);
  }

  const int64_t frames_;
};

class BareSender final
    : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  BareSender(const std::shared_ptr<grpc::Channel>& channel, ByteBuffer message,
             int64_t frames)
      : message_(std::move(message)), left_(frames) {
    grpc::TemplatedGenericStub<ByteBuffer, ByteBuffer> stub(channel);
    stub.PrepareBidiStreamingCall(&context_, "/paceline.v1.Stage/Exchange", {},
                                  this);
    StartRead(&unused_);
    StartWrite(&message_);
    StartCall();
  }
  void Await() { done_.WaitForNotification(); }

 private:
  void OnWriteDone(bool ok) override {
    PACELINE_CHECK(ok, "write");
    if (--left_ > 0) {
      StartWrite(&message_);
    } else {
      StartWritesDone();
    }
  }
  void OnDone(const grpc::Status& status) override {
    PACELINE_CHECK(status.ok(), status.error_message());
    done_.Notify();
  }

  grpc::ClientContext context_;
  ByteBuffer message_;
  ByteBuffer unused_;
  int64_t left_;
  absl::Notification done_;
};

void RunGrpc(bool send, const TransferSpec& spec) {
  DroppingService service(spec.frames);
  BoundServer server = Serve(&service);
  const int other = TradePorts(server.port);
  if (send) {
    const auto channel = MakeChannel(Local(other));
    PACELINE_CHECK(channel->WaitForConnected(DeadlineAfter(absl::Seconds(10))),
                   "no connection");
    const std::vector<uint8_t> memory(spec.frame_bytes, 1);
    const grpc::Slice slice(memory.data(), memory.size(),
                            grpc::Slice::STATIC_SLICE);
    TimeSender([&] {
      BareSender sender(channel, ByteBuffer(&slice, 1), spec.frames);
      sender.Await();
    });
  } else {
    TimeReceiver([&](const std::function<void()>& first) {
      service.first.WaitForNotification();
      first();
      service.last.WaitForNotification();
    });
  }
  server.server->Shutdown();
}

}  // namespace

std::string MakeIdentity() {
  std::string folder = "/tmp/paceline-bench-XXXXXX";
  PACELINE_CHECK(mkdtemp(folder.data()) != nullptr, "no folder in /tmp");
  const TlsFiles files(folder);
  const absl::Time now = SystemClock().Today();
  const std::string authority_key = MakeKey();
  const std::string authority = MakeAuthority(authority_key, now).value();
  const auto certificate =
      Sign({MakeSigningRequest(KeyOf(files).value()).value(),
            {Role::kWorker, "bench"},
            authority,
            authority_key,
            now,
            absl::Hours(1)});
  PACELINE_CHECK(certificate.ok(), certificate.status().ToString());
  const absl::Status written = WriteIdentity(files, *certificate, authority);
  PACELINE_CHECK(written.ok(), written.ToString());
  return folder;
}

void RunTransfer(const std::string& way, bool send, const TransferSpec& spec) {
  // As the daemons do: Debian's Abseil looks for lock cycles at every lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (way == "tls") {
    const absl::Status used = UseTls(TlsFiles(spec.identity));
    PACELINE_CHECK(used.ok(), used.ToString());
  }
  if (way == "plane" || way == "tls") {
    RunPlane(send, spec);
  } else if (way == "grpc+") {
    const DataPlane plane;  // for what it tells the allocator
    RunGrpc(send, spec);
  } else {
    RunGrpc(send, spec);
  }
}

}  // namespace paceline
