// Rounds over gRPC when connections break, or a peer does not read.
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/os/thread.h"
#include "gtest/gtest.h"
#include "tests/cluster/round_net.h"

namespace paceline {
namespace {

constexpr size_t kManyChunks = 40 * kRoundChunkBytes + 100;

// A payload over memory that is given back when nobody needs it any more.
struct LentMemory {
  explicit LentMemory(size_t bytes) : memory(bytes) {
    part = RoundPayload::Over(
        memory.data(), memory.size(),
        std::shared_ptr<void>(&memory, [this](void*) { released.Notify(); }));
  }
  bool IsGivenBack() { return released.WaitFor(absl::Seconds(20)); }

  SteadyNotification released;
  std::vector<uint8_t> memory;
  std::shared_ptr<RoundPayload> part;
};

// Two members, of which one breaks.
class RoundPair : public ::testing::Test {
 protected:
  RoundPair() {
    for (int i = 0; i < 2; ++i) {
      nodes_.push_back(std::make_unique<RoundNode>(i));
      transports_.push_back(nodes_[i]->Open(&sinks_[i]));
    }
    for (int i = 0; i < 2; ++i) transports_[i]->SetPeers(Workers());
    EXPECT_TRUE(sinks_[1].AwaitLink(0, /*up=*/true));
  }
  std::vector<GroupWorker> Workers() const {
    return {nodes_[0]->worker(), nodes_[1]->worker()};
  }
  void Offer(const PayloadKey& key,
             const std::shared_ptr<RoundPayload>& payload) {
    transports_[1]->Send(TestMember(0), OfferFrom(1, key, *payload), key,
                         payload);
  }

  // As members do that wait for an answer: what was under way when a
  // connection broke is lost.
  bool OfferUntilItArrives(const PayloadKey& key,
                           const std::shared_ptr<RoundPayload>& payload,
                           int payloads = 1) {
    for (int i = 0; i < 1000; ++i) {
      Offer(key, payload);
      if (sinks_[0].AwaitPayloads(payloads, absl::Milliseconds(20))) {
        return true;
      }
    }
    return false;
  }

  RoundRecorder sinks_[2];
  std::vector<std::unique_ptr<RoundNode>> nodes_;
  std::vector<std::shared_ptr<RoundTransport>> transports_;
};

TEST_F(RoundPair, TellsThatAnotherProcessListensThere) {
  const int port = nodes_[0]->port();
  nodes_[0]->Stop();
  ASSERT_TRUE(sinks_[1].AwaitLink(0, /*up=*/false, /*refused=*/true));
  PlaneServer<RoundPlane, PlaneOptions> another(
      PlaneOptions{.incarnation = Incarnation{5}});
  another.StopServer();
  another.StartServerOn(port);

  transports_[1]->SetPeers({});
  transports_[1]->SetPeers(Workers());

  EXPECT_TRUE(sinks_[1].AwaitLink(0, /*up=*/false, /*refused=*/true));
}

TEST_F(RoundPair, ConnectsAgainAndSendsWhatWasOnItsWay) {
  const auto part = UnreadyPayload(kTwoChunks, 2);
  transports_[1]->SendAhead(TestMember(0), PartKey(4), part);
  MarkReady(*part, 1);
  ASSERT_TRUE(sinks_[0].AwaitChunks(1, PartKey(4), 1));

  nodes_[0]->plane.BreakStreamsForTest();
  MarkReady(*part, 0);

  ASSERT_TRUE(OfferUntilItArrives(PartKey(4), part));
  EXPECT_EQ(sinks_[0].got()[0].payload->bytes(), part->bytes());
  EXPECT_TRUE(sinks_[1].AwaitLink(0, /*up=*/true));
  EXPECT_EQ(nodes_[1]->plane.stats().reconnects, 1);
}

TEST_F(RoundPair, SendsBytesAgainWhenTheirMessageIsSentAgainAfterABreak) {
  const auto part = ReadyPayload(kTwoChunks, 2);
  Offer(PartKey(4), part);
  ASSERT_TRUE(sinks_[0].AwaitMessages(1));

  nodes_[0]->plane.BreakStreamsForTest();

  ASSERT_TRUE(OfferUntilItArrives(PartKey(4), part, /*payloads=*/2));
  EXPECT_EQ(sinks_[0].got()[1].payload, sinks_[0].got()[0].payload);
}

TEST_F(RoundPair, GoesOnAfterAChunkArrivedDamaged) {
  const auto part = UnreadyPayload(kTwoChunks, 2);
  // Says what the bytes will be only after they went out: so the checksum of
  // what arrives first is wrong.
  part->MarkReady(0, /*hash=*/1);
  transports_[1]->SendAhead(TestMember(0), PartKey(4), part);

  while (nodes_[0]->plane.stats().checksum_errors == 0) {
    transports_[1]->Send(TestMember(0), CommitFrom(1, 1), {}, nullptr);
  }
  transports_[1]->Forget(5);

  EXPECT_TRUE(OfferUntilItArrives(PartKey(5), ReadyPayload(kTwoChunks, 3)));
  EXPECT_TRUE(sinks_[1].AwaitLink(0, /*up=*/true));
}

TEST_F(RoundPair, CountsWhatItSendsAndReceives) {
  Offer(PartKey(4), ReadyPayload(kTwoChunks, 2));
  ASSERT_TRUE(sinks_[0].AwaitMessages(1));

  const PlaneStats sent = nodes_[1]->plane.stats();
  const PlaneStats received = nodes_[0]->plane.stats();

  EXPECT_EQ(sent.frames_sent, 2);  // the message goes with the last chunk
  EXPECT_EQ(sent.bytes_sent, static_cast<int64_t>(kTwoChunks));
  transports_[1]->SetPeers({});
  EXPECT_EQ(
      transports_[1]->SentBytes(),
      (std::map<WorkerId, int64_t>{{TestMember(0).worker, sent.bytes_sent}}));
  EXPECT_EQ(received.frames_received, sent.frames_sent);
  EXPECT_EQ(received.bytes_received, static_cast<int64_t>(kTwoChunks));
}

TEST_F(RoundPair, LosesItsMemoryOfAPayloadWhenTheStepIsForgotten) {
  auto part = UnreadyPayload(kTwoChunks, 2);
  const std::weak_ptr<RoundPayload> weak = part;
  transports_[1]->SendAhead(TestMember(0), PartKey(4), part);
  MarkReady(*part, 0);
  ASSERT_TRUE(sinks_[0].AwaitChunks(1, PartKey(4), 1));

  transports_[1]->Forget(5);
  part.reset();

  const Instant late = SteadyNow() + absl::Seconds(60);
  while (!weak.expired() && SteadyNow() < late) std::this_thread::yield();
  EXPECT_TRUE(weak.expired());
}

TEST_F(RoundPair, GoesOnAfterBytesThatThePeerRefused) {
  sinks_[0].SetMemory(
      [](const MemberId&, const PayloadKey& key,
         size_t bytes) -> absl::StatusOr<std::shared_ptr<RoundPayload>> {
        if (key == PartKey(5)) return BlockPool(0).Make(bytes);
        return absl::InvalidArgumentError("of another model");
      });
  Offer(PartKey(4), ReadyPayload(kTwoChunks, 1));
  ASSERT_TRUE(sinks_[1].AwaitLink(0, /*up=*/false));

  transports_[1]->Forget(5);

  EXPECT_TRUE(OfferUntilItArrives(PartKey(5), ReadyPayload(kTwoChunks, 2)));
}

TEST_F(RoundPair, GivesMemoryBackThoughThePeerIsStuck) {
  // Shared with a thread of gRPC's, which may still be about to leave it.
  const auto go = std::make_shared<SteadyNotification>();
  sinks_[0].SetMemory([go](const MemberId&, const PayloadKey&, size_t bytes) {
    go->WaitForNotification();
    return BlockPool(0).Make(bytes);
  });
  LentMemory lent(kManyChunks);
  for (int i = 0; i < lent.part->chunks(); ++i) MarkReady(*lent.part, i);
  const int64_t sent = nodes_[1]->plane.stats().bytes_sent;
  transports_[1]->SendAhead(TestMember(0), PartKey(1), lent.part);
  lent.part.reset();
  while (nodes_[1]->plane.stats().bytes_sent == sent) std::this_thread::yield();

  transports_[1]->Forget(2);

  EXPECT_TRUE(lent.IsGivenBack());
  go->Notify();
}

TEST(RoundPlane, GivesForgottenMemoryBackThoughThePeerDoesNotRead) {
  // Nobody has opened a group at member 0: it holds the stream, reads a little
  // ahead, and no more.
  RoundNode silent(0), sender(1);
  RoundRecorder sink;
  const auto transport = sender.Open(&sink);
  transport->SetPeers({silent.worker(), sender.worker()});
  constexpr size_t kManyBytes = 64 * kRoundChunkBytes;
  LentMemory lent(kManyBytes);
  for (int i = 0; i < lent.part->chunks(); ++i) MarkReady(*lent.part, i);
  transport->SendAhead(TestMember(0), PartKey(4), lent.part);
  lent.part.reset();
  while (sender.plane.stats().bytes_sent == 0) std::this_thread::yield();

  transport->Forget(5);

  EXPECT_TRUE(lent.IsGivenBack());
  EXPECT_LT(sender.plane.stats().bytes_sent, static_cast<int64_t>(kManyBytes));
  EXPECT_EQ(sink.link_changes(0), 0);
}

}  // namespace
}  // namespace paceline
