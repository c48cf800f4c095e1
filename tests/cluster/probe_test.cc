// Processes measure the links between them, over real sockets.
#include <limits>
#include <string>
#include <utility>

#include "core/rpc/channel.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/cluster/plane_server.h"
#include "worker/transport/grpc_prober.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

v1::MeasureLink LinkTo(const std::string& address) {
  v1::MeasureLink link;
  link.set_name("b");
  link.set_address(address);
  return link;
}

// Its worker listens at none of the addresses.
GrpcProber Elsewhere() { return {"", ""}; }

class ProbeTest : public testing::Test {
 protected:
  v1::MeasureLink target() const { return LinkTo(server_.address()); }

  PlaneServer<DataPlane, PlaneOptions> server_;
  CancelToken cancel_;
};

TEST_F(ProbeTest, MeasuresTheWayToTheOther) {
  const LinkMeasurement link =
      Elsewhere().ProbeLink("a", target(), cancel_).value();

  EXPECT_EQ(link.from, "a");
  EXPECT_EQ(link.to, "b");
  EXPECT_GT(link.bytes_per_second, 1e6);  // loopback, however busy
  EXPECT_GT(link.latency_seconds, 0);
  EXPECT_LT(link.latency_seconds, 1);
  // Both ends are this process: no byte is free, and none takes a
  // microsecond.
  EXPECT_GT(link.send_cpu_seconds_per_byte, 0);
  EXPECT_LT(link.send_cpu_seconds_per_byte, 1e-6);
  EXPECT_GT(link.receive_cpu_seconds_per_byte, 0);
  EXPECT_LT(link.receive_cpu_seconds_per_byte, 1e-6);
}

TEST_F(ProbeTest, SaysWhoCannotBeReached) {
  const v1::MeasureLink nobody = target();
  server_.Stop();

  const auto link = Elsewhere().ProbeLink("a", nobody, cancel_);

  EXPECT_TRUE(absl::IsUnavailable(link.status())) << link.status();
  EXPECT_THAT(link.status().message(), HasSubstr("dial b ("));
}

TEST_F(ProbeTest, EndsWhenCancelled) {
  cancel_.Cancel(absl::CancelledError("an order has changed"));

  EXPECT_TRUE(absl::IsCancelled(
      Elsewhere().ProbeLink("a", target(), cancel_).status()));
}

TEST_F(ProbeTest, AnswersAnyMessageWithoutAPayload) {
  const auto stub = v1::Stage::NewStub(MakeChannel(target().address()));
  grpc::ClientContext context;
  const auto stream = stub->Probe(&context);
  v1::ProbeMessage message;
  message.set_payload(std::string(1000, 'x'));
  // An older worker asked for so many bytes.
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(2, 1000);

  stream->Write(message);
  ASSERT_TRUE(stream->Read(&message));

  EXPECT_EQ(message.payload(), "");
  EXPECT_GT(message.cpu_seconds(), 0);
  context.TryCancel();
}

// Answers probes, and lies about its CPU.
class LyingNeighbour final : public v1::Stage::Service {
 public:
  explicit LyingNeighbour(double cpu_seconds) : cpu_seconds_(cpu_seconds) {
    auto server = StartServer({.listen = "127.0.0.1:0"}, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~LyingNeighbour() override { server_.server->Shutdown(); }

  v1::MeasureLink target() const {
    return LinkTo("127.0.0.1:" + std::to_string(server_.port));
  }

 private:
  grpc::Status Probe(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ProbeMessage, v1::ProbeMessage>* stream)
      override {
    for (v1::ProbeMessage request; stream->Read(&request);) {
      v1::ProbeMessage reply;
      reply.set_cpu_seconds(cpu_seconds_);
      if (!stream->Write(reply)) break;
    }
    return grpc::Status::OK;
  }

  const double cpu_seconds_;
  BoundServer server_;
};

// Was reported as it came; the coordinator refused it, and the worker that had
// asked was gone.
TEST(LinkProbe, BelievesNoNeighbourWhoseCpuTimeIsNoNumber) {
  for (const double lie : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(), -1.0}) {
    const LyingNeighbour neighbour(lie);
    const CancelToken cancel;

    const auto links = Elsewhere().ProbeLink("a", neighbour.target(), cancel);

    EXPECT_TRUE(absl::IsInvalidArgument(links.status())) << links.status();
    EXPECT_THAT(links.status().message(), HasSubstr("the link to b ("));
  }
}

TEST(FrameMeter, FindsWhatFramesCost) {
  const CancelToken cancel;

  const auto cost = Elsewhere().MeasureFrames(cancel).value();

  EXPECT_GT(cost.seconds, 1e-7);
  EXPECT_LT(cost.seconds, 0.05);
  EXPECT_GT(cost.seconds_per_byte, 0);
  EXPECT_LT(cost.seconds_per_byte, 1e-6);
  EXPECT_GT(cost.gate_seconds, 1e-7);
}

TEST(FrameMeter, EndsWhenCancelled) {
  CancelToken cancel;
  cancel.Cancel(absl::CancelledError("enough"));

  EXPECT_TRUE(absl::IsCancelled(Elsewhere().MeasureFrames(cancel).status()));
}

}  // namespace
}  // namespace paceline
