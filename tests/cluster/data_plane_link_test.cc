// Tests what every Link promises, against every Link.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/os/thread.h"
#include "gtest/gtest.h"
#include "tests/cluster/data_plane_mesh.h"

namespace paceline {
namespace {

using MakeMesh = std::function<std::unique_ptr<LinkMesh>(const MeshSpec&)>;

struct Variant {
  std::string name;
  MakeMesh make;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class LinkTest : public ::testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<LinkMesh> Make(const MeshSpec& spec = {}) {
    return GetParam().make(spec);
  }

  static void Send(Link& link, const FrameKey& key, int64_t samples = 4,
                   const Shape& shape = {4}) {
    const absl::Status sent = link.Send(MakeFrame(key, samples, shape));
    ASSERT_TRUE(sent.ok()) << sent;
  }
  // As soon as there is room for it.
  static void SendWhenRoom(Link& link, const FrameKey& key) {
    ASSERT_TRUE(link.AwaitRoom(key.boundary, key.batch, 1).ok());
    Send(link, key);
  }
  static void ExpectReceived(Link& link, const FrameKey& key,
                             int64_t samples = 4, const Shape& shape = {4}) {
    const absl::StatusOr<Frame> got = link.Receive(key);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(Difference(*got, MakeFrame(key, samples, shape)), "");
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, LinkTest,
    ::testing::Values(Variant{"Memory",
                              [](const MeshSpec& spec) {
                                return std::make_unique<MemoryLinkMesh>(spec);
                              }},
                      Variant{"Rpc",
                              [](const MeshSpec& spec) {
                                return std::make_unique<RpcLinkMesh>(spec);
                              }}),
    [](const auto& info) { return info.param.name; });

TEST_P(LinkTest, FillsInFenceAndTensors) {
  const MeshSpec spec = {.fence = {JobId{9}, 8, 7}};
  const auto mesh = Make(spec);
  Send(mesh->link(0), ActivationKey(0, 0));

  const auto got = mesh->link(1).Receive(ActivationKey(0, 0)).value();

  EXPECT_EQ(got.header.fence, spec.fence);
  EXPECT_EQ(got.header.tensors, (std::vector<TensorMeta>{{DType::kF32, {4, 4}},
                                                         {DType::kI64, {4}}}));
}

TEST_P(LinkTest, ReceivesInAnyOrder) {
  const auto mesh = Make({.bound = 4});
  for (int i = 0; i < 4; ++i) {
    Send(mesh->link(0), ActivationKey(0, i));
  }

  for (const int i : {3, 0, 2, 1}) {
    ExpectReceived(mesh->link(1), ActivationKey(0, i));
  }
}

TEST_P(LinkTest, ReceiveWaitsForAFrameThatIsSentLater) {
  const auto mesh = Make();
  Thread receiver("receiver",
                  [&] { ExpectReceived(mesh->link(1), ActivationKey(0, 0)); });

  Send(mesh->link(0), ActivationKey(0, 0));
}

TEST_P(LinkTest, AwaitBatchTellsOfTheBatchAndLeavesTheFrame) {
  const auto mesh = Make();
  Send(mesh->link(0), ActivationKey(5, 1));

  const auto batch = mesh->link(1).AwaitBatch(0, 5).value();

  EXPECT_EQ(batch, MakeFrame(ActivationKey(5, 1)).header.batch);
  ExpectReceived(mesh->link(1), ActivationKey(5, 1));
}

TEST_P(LinkTest, CarriesLargeAndTinyTensors) {
  const auto mesh = Make({.sample_shape = {1 << 15}, .micro_batch = 64});

  Send(mesh->link(0), ActivationKey(0, 0), 64, {1 << 15});
  Send(mesh->link(0), ActivationKey(0, 1), 1, {1 << 15});
  ExpectReceived(mesh->link(1), ActivationKey(0, 0), 64, {1 << 15});
  ExpectReceived(mesh->link(1), ActivationKey(0, 1), 1, {1 << 15});

  const auto tiny_mesh = Make({.sample_shape = {1}});
  Send(tiny_mesh->link(0), ActivationKey(0, 0), 1, {1});
  ExpectReceived(tiny_mesh->link(1), ActivationKey(0, 0), 1, {1});
}

// Stages 0 and 1 on worker 0, 2 on worker 1, 3 on worker 0 again: local
// boundaries, remote ones both ways between the same two workers.
TEST_P(LinkTest, CarriesFourStagesOverLocalAndRemoteBoundaries) {
  const MeshSpec spec = {.worker_of = {0, 0, 1, 0}};
  const auto mesh = Make(spec);
  const auto run = [&](int worker) {
    Link& link = mesh->link(worker);
    for (int batch = 0; batch < 20; ++batch) {
      for (int stage = 0; stage < 4; ++stage) {
        if (spec.worker_of[stage] != worker) continue;
        if (stage > 0) ExpectReceived(link, ActivationKey(batch, 0, stage - 1));
        if (stage == 3) break;
        Send(link, ActivationKey(batch, 0, stage));
      }
      for (int stage = 3; stage >= 0; --stage) {
        if (spec.worker_of[stage] != worker) continue;
        if (stage < 3) ExpectReceived(link, GradientKey(batch, 0, stage));
        if (stage == 0) break;
        Send(link, GradientKey(batch, 0, stage - 1));
      }
    }
  };

  Thread other("worker1", [&] { run(1); });
  run(0);
}

TEST_P(LinkTest, CarriesManyFramesUnderASmallBound) {
  constexpr int kFrames = 500;
  const auto mesh = Make({.bound = 1});
  Thread sender("sender", [&] {
    for (int i = 0; i < kFrames; ++i) {
      SendWhenRoom(mesh->link(0), ActivationKey(i, 0));
    }
  });

  for (int i = 0; i < kFrames; ++i) {
    ExpectReceived(mesh->link(1), ActivationKey(i, 0));
  }
}

TEST_P(LinkTest, AwaitRoomHoldsASenderBackThatIsFarAhead) {
  const auto mesh = Make({.bound = 2});
  for (int i = 0; i < 4; ++i) {
    SendWhenRoom(mesh->link(0), ActivationKey(i, 0));
  }
  SteadyNotification room;
  Thread sender("sender", [&] {
    EXPECT_TRUE(
        mesh->link(0).AwaitRoom(0, 0, 9).ok());  // 9: as much as there is
    room.Notify();
  });

  // All that may be taken without making room for two.
  ExpectReceived(mesh->link(1), ActivationKey(0, 0));
  EXPECT_FALSE(room.WaitFor(absl::Milliseconds(20)));
  ExpectReceived(mesh->link(1), ActivationKey(1, 0));
  room.WaitForNotification();
}

TEST_P(LinkTest, AwaitRoomAsksNothingBetweenStagesOfOneWorker) {
  const auto mesh = Make({.worker_of = {0, 0}});

  EXPECT_TRUE(mesh->link(0).AwaitRoom(0, 0, 1000).ok());
}

TEST_P(LinkTest, RefusesToQueueWithoutBound) {
  for (const std::vector<int>& workers :
       {std::vector<int>{0, 1}, std::vector<int>{0, 0}}) {
    const MeshSpec spec = {.worker_of = workers};
    const auto mesh = Make(spec);
    absl::Status sent;
    int count = 0;
    while (sent.ok() && count < 1000) {
      sent = mesh->link(0).Send(MakeFrame(ActivationKey(count++, 0)));
    }
    EXPECT_TRUE(absl::IsResourceExhausted(sent)) << sent;
    EXPECT_GE(count, SendLimit(spec.bound));
  }
}

TEST_P(LinkTest, SaysNotFoundForBoundariesOfOthers) {
  const auto mesh = Make({.worker_of = {0, 1, 2}});

  for (const FrameKey& key :
       {ActivationKey(0, 0, 1), ActivationKey(0, 0, 7), GradientKey(0, 0, 0)}) {
    EXPECT_TRUE(absl::IsNotFound(mesh->link(0).Send(MakeFrame(key))));
  }
  for (const absl::Status& status :
       {mesh->link(0).Receive(ActivationKey(0, 0, 0)).status(),
        mesh->link(1).Receive(ActivationKey(0, 0, -1)).status(),
        mesh->link(2).AwaitBatch(0, 0).status(),
        mesh->link(0).AwaitRoom(1, 0, 1).status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
  }
}

TEST_P(LinkTest, CancelWakesEveryWaiterWithTheFirstReason) {
  const auto mesh = Make();
  Link& link = mesh->link(1);
  absl::Status receive, batch;
  {
    Thread receiver("receiver", [&] {
      receive = link.Receive(ActivationKey(0, 0)).status();
    });
    Thread batcher("batcher", [&] { batch = link.AwaitBatch(0, 0).status(); });

    link.Cancel(absl::DataLossError("first"));
    link.Cancel(absl::InternalError("second"));
  }

  for (const absl::Status& status :
       {receive, batch, link.Send(MakeFrame(GradientKey(0, 0))),
        link.Receive(ActivationKey(0, 1)).status()}) {
    EXPECT_EQ(status, absl::DataLossError("first"));
  }
}

TEST_P(LinkTest, CancelWakesASenderThatWaitsForRoom) {
  const auto mesh = Make({.bound = 1});
  for (int i = 0; i < 2; ++i) {
    SendWhenRoom(mesh->link(0), ActivationKey(i, 0));
  }
  absl::Status room;
  {
    Thread sender("sender",
                  [&] { room = mesh->link(0).AwaitRoom(0, 0, 1).status(); });
    mesh->link(0).Cancel(absl::CancelledError("enough"));
  }

  EXPECT_EQ(room, absl::CancelledError("enough"));
}

TEST_P(LinkTest, WhatWasSentArrivesAlthoughTheSenderCloses) {
  const auto mesh = Make({.bound = 4});
  for (int i = 0; i < 12; ++i) {
    Send(mesh->link(0), ActivationKey(0, i));
  }

  mesh->Drop(0);

  for (int i = 0; i < 12; ++i) {
    ExpectReceived(mesh->link(1), ActivationKey(0, i));
  }
}

// A tensor that two stages share, whole: no samples.
Frame TiedFrame(FrameKind kind, int32_t boundary, float value) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.boundary = boundary;
  frame.header.batch = {5, BatchPhase::kTrain, 5, 2, 7, false};
  frame.tensors = {Tensor::Allocate(DType::kF32, {3, 2})};
  for (float& each : frame.tensors[0].As<float>()) each = value;
  return frame;
}

MeshSpec TiedSpec() {
  MeshSpec spec;
  spec.worker_of = {0, 1, 2};
  spec.ties = {{"inner", {3, 2}, 1, 2}, {"outer", {3, 2}, 0, 2}};
  // Rounds activations, never what is tied.
  spec.codec = Codec::kBf16;
  return spec;
}

TEST_P(LinkTest, CarriesTiedParametersBetweenTheirStagesToTheLastBit) {
  const auto mesh = Make(TiedSpec());
  const float kValue = 1 + 1.0f / (1 << 20);
  constexpr int32_t kOuter = 3;  // behind two cuts and the first tie

  ASSERT_TRUE(mesh->link(2)
                  .Send(TiedFrame(FrameKind::kTiedGradient, kOuter, kValue))
                  .ok());
  const auto gradient =
      mesh->link(0).Receive({FrameKind::kTiedGradient, kOuter, 5, 0});
  ASSERT_TRUE(mesh->link(0)
                  .Send(TiedFrame(FrameKind::kTiedValue, kOuter, -kValue))
                  .ok());
  const auto value =
      mesh->link(2).Receive({FrameKind::kTiedValue, kOuter, 5, 0});

  ASSERT_TRUE(gradient.ok() && value.ok()) << gradient.status();
  EXPECT_EQ(gradient->tensors[0].As<float>()[5], kValue);
  EXPECT_EQ(value->tensors[0].As<float>()[5], -kValue);
}

TEST_P(LinkTest, RefusesTiedParametersWhereThereAreNone) {
  const auto mesh = Make(TiedSpec());
  const auto refused = [&](int worker, FrameKind kind, int32_t boundary) {
    return absl::IsNotFound(
        mesh->link(worker).Send(TiedFrame(kind, boundary, 1)));
  };

  // Not the user's stage, not the owner's, a cut, and no boundary at all.
  EXPECT_TRUE(refused(0, FrameKind::kTiedGradient, 3));
  EXPECT_TRUE(refused(2, FrameKind::kTiedValue, 3));
  EXPECT_TRUE(refused(2, FrameKind::kTiedGradient, 1));
  EXPECT_TRUE(refused(2, FrameKind::kTiedGradient, 4));
}

// Stage 0 on workers 0 and 1, stage 1 on 2, 3 and 4, with turns of their own;
// stage 2 on 5.
MeshSpec Replicated() {
  return {.worker_of = {0, 2, 5},
          .replicas = {{1}, {3, 4}, {}},
          .routes = {RouteTable({0, 1, 1}), RouteTable({0, 1, 2, 0}),
                     RouteTable()}};
}

TEST_P(LinkTest, CarriesEachFrameToTheReplicaWhoseTurnItIs) {
  const MeshSpec spec = Replicated();
  const auto mesh = Make(spec);
  constexpr int kBatches = 48;
  std::vector<Thread> workers;
  for (int stage = 0; stage < 2; ++stage) {
    const std::vector<int> holders = HoldersOf(spec)[stage];
    for (size_t replica = 0; replica < holders.size(); ++replica) {
      workers.emplace_back("worker", [&, stage, replica, holders] {
        Link& link = mesh->link(holders[replica]);
        const Turns turns = {spec.routes[stage], static_cast<int>(replica)};
        for (int64_t b = turns.Next(0); b < kBatches; b = turns.Next(b + 1)) {
          if (stage > 0) {
            ASSERT_TRUE(link.AwaitBatch(0, b).ok());
            ExpectReceived(link, ActivationKey(b, 0, 0));
          }
          SendWhenRoom(link, ActivationKey(b, 0, stage));
        }
      });
    }
  }
  for (int64_t b = 0; b < kBatches; ++b) {
    ExpectReceived(mesh->link(5), ActivationKey(b, 0, 1));
  }
}

// Four frames wait at one replica of stage 1; the others have room.
TEST_P(LinkTest, AwaitRoomLooksAtTheReplicaThatTheBatchGoesTo) {
  MeshSpec spec = Replicated();
  spec.routes[0] = RouteTable({0, 0, 0, 1});
  const auto mesh = Make(spec);
  Link& link = mesh->link(0);
  for (const int64_t batch : {0, 4, 8, 12}) {
    SendWhenRoom(link, ActivationKey(batch, 0, 0));
  }

  EXPECT_TRUE(link.AwaitRoom(0, 1, 1).ok());
  EXPECT_TRUE(link.AwaitRoom(0, 2, 1).ok());
  SteadyNotification waited;
  Thread waiter("waiter", [&] {
    EXPECT_TRUE(link.AwaitRoom(0, 16, 2).ok());
    waited.Notify();
  });
  EXPECT_FALSE(waited.HasBeenNotified());
  for (const int64_t batch : {0, 4, 8, 12}) {
    ExpectReceived(mesh->link(2), ActivationKey(batch, 0, 0));
  }
}

}  // namespace
}  // namespace paceline
