// Only the data plane over gRPC has this: breaks, fences, hostile peers.
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/os/thread.h"
#include "core/rpc/status.h"
#include "core/transfer/frame_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/cluster/data_plane_receiver.h"
#include "worker/transport/stream/inbound_stream.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// Four of them make a frame of three chunks.
const Shape kLargeSample = {600'000};

// The two workers of a run say which of their links are broken.
class BrokenLinksTest : public ::testing::Test {
 protected:
  BrokenLinksTest() : mesh_(Spec()) {}

  // Looks again whenever the link has changed.
  void AwaitLinks(const std::function<bool(std::vector<BrokenLink>)>& as) {
    for (int64_t seen = 0; !as(mesh_.link(0).BrokenLinks());) {
      const auto changed = [this, &seen]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return changes_ > seen;
      };
      SteadyLock lock(&mutex_);
      ASSERT_TRUE(
          mutex_.AwaitFor(absl::Condition(&changed), absl::Seconds(30)));
      seen = changes_;
    }
  }

  MeshSpec Spec() {
    MeshSpec spec;
    spec.on_links = [this] {
      SteadyLock lock(&mutex_);
      ++changes_;
    };
    return spec;
  }

  SteadyMutex mutex_;
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  RpcLinkMesh mesh_;
};

TEST_F(BrokenLinksTest, ALinkCountsWhatItHasSentToEachNeighbour) {
  EXPECT_EQ(mesh_.link(0).SentBytes().at(WorkerId{1}), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(mesh_.link(0).Send(MakeFrame(ActivationKey(i, 0))).ok());
    ASSERT_TRUE(mesh_.link(1).Receive(ActivationKey(i, 0)).ok());
  }
  EXPECT_GE(mesh_.link(0).SentBytes().at(WorkerId{1}), 2 * 16);
  EXPECT_EQ(mesh_.link(1).SentBytes().at(WorkerId{0}), 0);
}

TEST_F(BrokenLinksTest, AreToldAtOnceUntilTheNeighbourIsBack) {
  ASSERT_TRUE(mesh_.link(0).Send(MakeFrame(ActivationKey(0, 0))).ok());
  ASSERT_TRUE(mesh_.link(1).Receive(ActivationKey(0, 0)).ok());
  EXPECT_TRUE(mesh_.link(0).BrokenLinks().empty());
  const int port = mesh_.node(1).port();

  mesh_.node(1).StopServer();

  AwaitLinks([](const std::vector<BrokenLink>& broken) {
    return broken.size() == 1 && broken[0].neighbour == WorkerId{1} &&
           broken[0].refused;
  });
  for (int i = 1; i < 4; ++i) {
    ASSERT_TRUE(mesh_.link(0).Send(MakeFrame(ActivationKey(i, 0))).ok());
  }
  mesh_.node(1).StartServerOn(port);
  AwaitLinks([](const auto& broken) { return broken.empty(); });
  for (int i = 1; i < 4; ++i) {
    const auto got = mesh_.link(1).Receive(ActivationKey(i, 0)).value();
    EXPECT_EQ(Difference(got, MakeFrame(ActivationKey(i, 0))), "");
  }
}

TEST_F(ReceiverTest, ReadsFramesThatProtobufWrote) {
  const RunConnections run = Open(fence_);
  Frame frame = MakeFrame(ActivationKey(3, 1));
  frame.header.fence = fence_;
  const std::string ours = Flatten(EncodeFrame(frame));
  v1::StageFrame proto;
  ASSERT_TRUE(proto.ParseFromString(ours));
  EXPECT_EQ(proto.job(), 5);
  EXPECT_EQ(proto.attempt(), 2);
  EXPECT_EQ(proto.plan_version(), 3);
  EXPECT_EQ(proto.kind(), v1::FRAME_KIND_ACTIVATION);
  EXPECT_EQ(proto.batch(), 3);
  EXPECT_EQ(proto.phase(), v1::BATCH_PHASE_TRAIN);
  EXPECT_EQ(proto.step(), 3);
  EXPECT_EQ(proto.micro_batch(), 1);
  EXPECT_EQ(proto.micro_batches(), 2);
  EXPECT_EQ(proto.samples(), 8);
  ASSERT_EQ(proto.tensors_size(), 2);
  EXPECT_EQ(proto.tensors(0).dtype(), v1::DTYPE_F32);
  EXPECT_EQ(proto.tensors(0).codec(), v1::CODEC_RAW);
  EXPECT_EQ(proto.tensors(0).shape(1), 4);
  EXPECT_EQ(proto.payload().size(), 4u * 4 * 4 + 4 * 8);
  EXPECT_EQ(proto.SerializeAsString(), ours);

  StageSender stream(node_.address(), fence_);
  stream.Write(proto.SerializeAsString());

  const auto got = run.link->Receive(ActivationKey(3, 1)).value();
  EXPECT_EQ(Difference(got, frame), "");
}

TEST_F(ReceiverTest, AnswersAHelloWithWhatItHas) {
  const RunConnections run = Open(fence_);
  {
    StageSender stream(node_.address(), fence_);
    EXPECT_EQ(stream.ReadCredit().granted(), 4);  // twice the bound
    stream.Write(DataBytes(fence_, 0, ActivationKey(0, 0)));
    ASSERT_TRUE(run.link->Receive(ActivationKey(0, 0)).ok());
    EXPECT_TRUE(stream.End().ok());
  }

  StageSender stream(node_.address(), fence_);
  const v1::StageCredit credit = stream.ReadCredit();

  EXPECT_EQ(credit.granted(), 5);
  EXPECT_EQ(credit.received(), 1);
  EXPECT_EQ(credit.kind(), v1::FRAME_KIND_ACTIVATION);
}

TEST_F(ReceiverTest, DropsFramesOfAnOlderPlanAndKeepsTheStream) {
  const Fence older{JobId{5}, 2, 2};
  const RunConnections run = Open(fence_);
  StageSender stream(node_.address(), older);
  stream.Write(DataBytes(older, 0, ActivationKey(0, 0)));

  stream.Write(HelloFrame(fence_, 0));
  stream.Write(DataBytes(fence_, 0, ActivationKey(0, 0)));

  EXPECT_TRUE(run.link->Receive(ActivationKey(0, 0)).ok());
  EXPECT_EQ(node_.plane.stats().frames_dropped_old, 2);
  EXPECT_TRUE(stream.End().ok());
}

TEST_F(ReceiverTest, DropsFramesOfARunThatWasClosed) {
  { const RunConnections run = Open(fence_); }
  StageSender stream(node_.address(), fence_);

  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(node_.plane.stats().frames_dropped_old, 1);
}

TEST_F(ReceiverTest, HoldsFramesOfANewerPlanUntilItsOwnOrderComes) {
  const Fence newer{JobId{5}, 2, 4};
  RunConnections run = Open(fence_);
  StageSender stream(node_.address(), newer);
  stream.Write(DataBytes(newer, 0, ActivationKey(7, 0)));

  run = {};
  run = Open(newer);

  EXPECT_TRUE(run.link->Receive(ActivationKey(7, 0)).ok());
  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(node_.plane.stats().frames_dropped_old, 0);
}

class ShortHoldTest : public ReceiverTest {
 protected:
  ShortHoldTest() : ReceiverTest(absl::Milliseconds(5)) {}
};

TEST_F(ShortHoldTest, HoldsNoStreamForever) {
  StageSender stream(node_.address(), fence_);

  const absl::Status end = stream.End();

  EXPECT_TRUE(absl::IsFailedPrecondition(end)) << end;
}

TEST_F(ReceiverTest, LetsTheLastSenderTakeOver) {
  const RunConnections run = Open(fence_);
  StageSender first(node_.address(), fence_);
  (void)first.ReadCredit();

  StageSender second(node_.address(), fence_);
  (void)second.ReadCredit();

  EXPECT_TRUE(absl::IsAborted(first.End()));
  second.Write(DataBytes(fence_, 0, ActivationKey(0, 0)));
  EXPECT_TRUE(run.link->Receive(ActivationKey(0, 0)).ok());
}

TEST_F(ReceiverTest, TakesAFrameThatIsSentTwiceOnce) {
  const RunConnections run = Open(fence_);
  StageSender stream(node_.address(), fence_);
  for (const int sequence : {0, 0, 1}) {
    stream.Write(DataBytes(fence_, sequence, ActivationKey(0, sequence)));
  }

  EXPECT_TRUE(run.link->Receive(ActivationKey(0, 1)).ok());
  EXPECT_TRUE(run.link->Receive(ActivationKey(0, 0)).ok());
  EXPECT_EQ(node_.plane.stats().frames_dropped_duplicate, 1);
}

struct Hostile {
  std::string name;
  absl::StatusCode code;
  std::string bytes;  // after a right hello
};

void PrintTo(const Hostile& hostile, std::ostream* out) {
  *out << hostile.name;
}

class HostileTest : public ReceiverTest,
                    public ::testing::WithParamInterface<Hostile> {};

std::string Edited(const std::function<void(Frame&)>& edit,
                   const FrameKey& key = ActivationKey(0, 0)) {
  Frame frame = MakeFrame(key);
  frame.header.fence = kReceiverFence;
  edit(frame);
  return Flatten(EncodeFrame(std::move(frame)));
}

std::vector<Hostile> AllHostile() {
  std::string damaged = DataBytes(kReceiverFence, 0, ActivationKey(0, 0));
  damaged.back() ^= 1;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  return {
      {"EmptyMessage", kInvalid, ""},
      {"WrongChecksum", kDataLoss, damaged},
      {"SequenceGap", kDataLoss,
       DataBytes(kReceiverFence, 1, ActivationKey(0, 0))},
      {"WrongDtype", kInvalid,
       Edited([](Frame& frame) { frame.tensors[0].dtype = DType::kI32; })},
      {"WrongShape", kInvalid, Edited([](Frame& frame) {
         frame.tensors[0].shape = {4, 2, 2};
       })},
      {"TooManySamples", kInvalid, Edited([](Frame& frame) {
         frame.tensors = MakeFrame(ActivationKey(0, 0), 5).tensors;
       })},
      {"BoundaryOfNobody", kInvalid,
       Edited([](Frame& frame) { frame.header.boundary = 1 << 30; })},
      {"HelloForNobody", kInvalid,
       Flatten(EncodeFrame(HelloFrame(kReceiverFence, 9)))},
      {"GradientToTheWrongSide", kInvalid,
       Edited([](Frame&) {}, GradientKey(0, 0))},
  };
}

INSTANTIATE_TEST_SUITE_P(All, HostileTest, ::testing::ValuesIn(AllHostile()),
                         [](const auto& info) { return info.param.name; });

TEST_P(HostileTest, EndsTheStreamWithAReasonAndNothingElse) {
  const RunConnections run = Open(fence_);
  StageSender stream(node_.address(), fence_);
  (void)stream.ReadCredit();
  stream.Write(GetParam().bytes);

  const absl::Status end = stream.End();

  EXPECT_EQ(end.code(), GetParam().code) << end;
  EXPECT_FALSE(end.message().empty());
  // The run goes on.
  StageSender good(node_.address(), fence_);
  good.Write(DataBytes(fence_, 0, ActivationKey(0, 0)));
  EXPECT_TRUE(run.link->Receive(ActivationKey(0, 0)).ok());
}

TEST_F(ReceiverTest, RefusesFramesWithoutAHelloAndAboveTheCredit) {
  const RunConnections run = Open(fence_);
  StageSender silent(node_.address());
  silent.Write(DataBytes(fence_, 0, ActivationKey(0, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(silent.End()));

  StageSender greedy(node_.address(), fence_);
  for (int i = 0; i < 5; ++i) {
    greedy.Write(DataBytes(fence_, i, ActivationKey(0, i)));
  }
  const absl::Status end = greedy.End();
  EXPECT_TRUE(absl::IsInvalidArgument(end));
  EXPECT_THAT(end.message(), HasSubstr("above its credit"));
}

std::string LargeFrame() {
  Frame frame = MakeFrame(ActivationKey(0, 0), 4, kLargeSample);
  frame.header.fence = kReceiverFence;
  return Flatten(EncodeFrame(std::move(frame)));
}

class ShortHelloTest : public ReceiverTest {
 protected:
  ShortHelloTest() : ReceiverTest(absl::Seconds(30), absl::Milliseconds(5)) {}
};

// Such a stream lived for ever.
TEST_F(ShortHelloTest, EndsAStreamThatNeverSaysHello) {
  const RunConnections run = Open(fence_);
  StageSender silent(node_.address());
  StageSender older(node_.address());
  older.Write(HelloFrame({fence_.job, 1, 1}, 0));

  // The streams have deadlines of their own, which say something else.
  for (StageSender* const sender : {&silent, &older}) {
    const absl::Status end = sender->AwaitEnd();
    EXPECT_TRUE(absl::IsDeadlineExceeded(end)) << end;
    EXPECT_THAT(end.message(), HasSubstr("no hello"));
  }
}

TEST_F(ReceiverTest, ReadsNoLargeMessageBeforeAHello) {
  const RunConnections run = Open(fence_);
  StageSender stream(node_.address());
  stream.Write(std::string(InboundStream::kMostOfAStranger + 1, 'x'));

  const absl::Status end = stream.AwaitEnd();

  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
  EXPECT_THAT(end.message(), HasSubstr("before a hello"));
}

// The run's order says how large its frames are.
TEST_F(ReceiverTest, RefusesATooLargeFrameByItsFirstChunk) {
  const RunConnections run = Open(fence_);
  const std::string bytes = LargeFrame();
  StageSender stream(node_.address(), fence_);
  stream.ReadCredit();

  stream.Write(bytes.substr(0, kMaxChunkBytes));
  const absl::Status end = stream.AwaitEnd();

  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
}

TEST_F(ReceiverTest, RefusesAChunkThatIsTooLong) {
  const RunConnections run = Open(fence_, kLargeSample);
  const std::string bytes = LargeFrame();
  StageSender stream(node_.address(), fence_);
  stream.ReadCredit();

  int64_t at = 0;
  for (; at + kMaxChunkBytes < std::ssize(bytes); at += kMaxChunkBytes) {
    stream.Write(bytes.substr(at, kMaxChunkBytes));
  }
  stream.Write(bytes.substr(at) + "x");
  const absl::Status end = stream.AwaitEnd();

  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
  EXPECT_THAT(end.message(), HasSubstr("are missing"));
}

// Large frames go out in pieces of bounded size.
TEST(DataPlane, SendsEverythingOnceAlthoughStreamsBreak) {
  const struct {
    int frames, breaks_every, bound, reconnects;
    Shape shape;
  } kCases[] = {{400, 40, 3, 5, {4}}, {12, 4, 2, 1, kLargeSample}};
  for (const auto& one : kCases) {
    RpcLinkMesh mesh({.sample_shape = one.shape, .bound = one.bound});
    Thread sender("sender", [&] {
      for (int i = 0; i < one.frames; ++i) {
        ASSERT_TRUE(mesh.link(0).AwaitRoom(0, 0, 1).ok());
        ASSERT_TRUE(mesh.link(0)
                        .Send(MakeFrame(ActivationKey(i, 0), 4, one.shape))
                        .ok());
      }
    });

    for (int i = 0; i < one.frames; ++i) {
      if (i % one.breaks_every == 1) mesh.node(1).plane.BreakStreamsForTest();
      const auto got = mesh.link(1).Receive(ActivationKey(i, 0)).value();
      ASSERT_EQ(Difference(got, MakeFrame(ActivationKey(i, 0), 4, one.shape)),
                "");
    }
    EXPECT_GE(mesh.node(0).plane.stats().reconnects, one.reconnects);
    EXPECT_EQ(mesh.node(1).plane.stats().frames_received, one.frames);
  }
}

// The job stayed at its first step for ever.
TEST(DataPlane, EndsTheRunsWaitsWhenTheNeighbourWasNeverReached) {
  PlaneNode node({.reach = absl::Milliseconds(100)});
  std::string nobody;
  {
    PlaneNode gone;
    nobody = gone.address();
  }
  auto run = node.plane.Open(WiringOf({}, 0, {node.address(), nobody})).value();

  const absl::Status status = run.link->Receive(GradientKey(0, 0)).status();

  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("--advertise"));
}

TEST(DataPlane, SendsAgainWhatWasDamagedOnTheWay) {
  // A receiver that finds the first frame damaged is one that ends the stream
  // with DATA_LOSS before it has taken any.
  class Damaged final : public v1::Stage::Service {
   public:
    grpc::Status Exchange(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<v1::StageCredit, v1::StageFrame>* stream)
        override {
      v1::StageFrame frame;
      v1::StageCredit credit;
      credit.set_granted(4);
      while (stream->Read(&frame)) {
        if (frame.kind() == v1::FRAME_KIND_HELLO) {
          stream->Write(credit);
          continue;
        }
        const int seen = ++frames;
        if (seen < 3) return {grpc::StatusCode::DATA_LOSS, "damaged"};
        sequence = frame.sequence();
        done.Notify();
        return grpc::Status::OK;
      }
      return grpc::Status::OK;
    }
    std::atomic<int> frames{0};
    std::atomic<int64_t> sequence{-1};
    absl::Notification done;
  } service;
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  auto server = StartServer(options, {&service}).value();
  PlaneNode node;
  auto run =
      node.plane
          .Open(WiringOf(
              {}, 0, {node.address(), absl::StrCat("127.0.0.1:", server.port)}))
          .value();

  ASSERT_TRUE(run.link->Send(MakeFrame(ActivationKey(0, 0))).ok());
  service.done.WaitForNotification();

  EXPECT_EQ(service.sequence, 0);
  run.link->Cancel(absl::CancelledError("done"));
  node.plane.Shutdown();
  server.server->Shutdown(DeadlineAfter(absl::ZeroDuration()));
}

// The neighbour expects another shape: what we send can never be right.
TEST(DataPlane, EndsTheRunsWaitsWhenTheNeighbourRefusesItsFrames) {
  PlaneNode first, second;
  const std::vector<std::string> addresses = {first.address(),
                                              second.address()};
  auto run0 = first.plane.Open(WiringOf({}, 0, addresses));
  auto run1 = second.plane.Open(WiringOf({.sample_shape = {5}}, 1, addresses));
  ASSERT_TRUE(run0.ok() && run1.ok());

  ASSERT_TRUE(run0->link->Send(MakeFrame(ActivationKey(0, 0))).ok());

  const absl::Status end = run0->link->Receive(GradientKey(0, 0)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
  EXPECT_THAT(end.message(), HasSubstr("worker 1 at 127.0.0.1"));
  EXPECT_THAT(end.message(), HasSubstr("F32[4, 5]"));
  EXPECT_EQ(run0->gate->Decide({StepReport{}}).status(), end);
}

TEST(DataPlane, RefusesFencesThatCannotBe) {
  PlaneNode node;
  const RunWiring good = WiringOf({}, 0, {node.address(), "127.0.0.1:1"});
  auto run = node.plane.Open(good).value();
  RunWiring next = good;
  next.fence.attempt = 2;
  EXPECT_TRUE(absl::IsFailedPrecondition(node.plane.Open(next).status()));
  run.link->Cancel(absl::CancelledError("done"));
  run = {};
  EXPECT_TRUE(absl::IsAborted(node.plane.Open(good).status()));
  EXPECT_TRUE(node.plane.Open(next).ok());
}

}  // namespace
}  // namespace paceline
