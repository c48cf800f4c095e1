// Tests what every RoundTransport promises, for any implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, RoundTransportSuite, Values(MakeNet));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/round_recorder.h"
#include "worker/rounds/parts/round_transport.h"

namespace paceline {

class RoundTransportSuite : public ::testing::TestWithParam<RoundNetMaker> {
 protected:
  static constexpr size_t kBytes = 3 * kRoundChunkBytes + 1000;  // 4 chunks

  void Start(int members) {
    std::vector<RoundSink*> sinks;
    for (int i = 0; i < members; ++i) {
      sinks_.push_back(std::make_unique<RoundRecorder>());
      sinks.push_back(sinks_.back().get());
    }
    net_ = GetParam()(sinks);
    for (int i = 0; i < members; ++i) transport(i).SetPeers(Workers());
  }

  std::vector<GroupWorker> Workers() {
    std::vector<GroupWorker> workers;
    for (size_t i = 0; i < sinks_.size(); ++i) {
      const int member = static_cast<int>(i);
      workers.push_back({TestMember(member), "w" + std::to_string(member),
                         net_->address(member)});
    }
    return workers;
  }
  RoundTransport& transport(int member) { return net_->transport(member); }
  RoundRecorder& sink(int member) { return *sinks_[member]; }

  // Member `from` offers the part to member 0.
  void Offer(int from, const PayloadKey& key,
             const std::shared_ptr<RoundPayload>& payload) {
    transport(from).Send(TestMember(0), OfferFrom(from, key, *payload), key,
                         payload);
  }

  std::vector<std::unique_ptr<RoundRecorder>> sinks_;
  std::unique_ptr<RoundNet> net_;
};

TEST_P(RoundTransportSuite, TellsEveryMemberThatItsLinksAreUp) {
  Start(3);

  for (int i = 0; i < 3; ++i) {
    for (int other = 0; other < 3; ++other) {
      if (other == i) continue;
      EXPECT_TRUE(sink(i).AwaitLink(other, /*up=*/true)) << i << " " << other;
    }
  }
}

TEST_P(RoundTransportSuite, CarriesMessagesInTheirOrder) {
  Start(2);

  for (int64_t step = 0; step < 100; ++step) {
    transport(1).Send(TestMember(0), CommitFrom(1, step), {}, nullptr);
  }

  ASSERT_TRUE(sink(0).AwaitMessages(100));
  const auto got = sink(0).got();
  for (int64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(CommittedStep(got[step].message), step);
    EXPECT_EQ(got[step].message.from, TestMember(1));
    EXPECT_EQ(got[step].message.attempt, 1);
    EXPECT_EQ(got[step].message.view, (ViewId{1, 1}));
    EXPECT_EQ(got[step].message.committed_through, 3);
    EXPECT_EQ(got[step].payload, nullptr);
  }
}

TEST_P(RoundTransportSuite, GivesAMessageWithItsBytes) {
  Start(2);
  const auto part = ReadyPayload(kBytes, 1);

  Offer(1, PartKey(4), part);

  ASSERT_TRUE(sink(0).AwaitMessages(1));
  const auto got = sink(0).got();
  ASSERT_NE(got[0].payload, nullptr);
  EXPECT_NE(got[0].payload, part);
  EXPECT_EQ(got[0].payload->bytes(), part->bytes());
  EXPECT_EQ(got[0].payload->hash(), part->hash());
  EXPECT_EQ(std::get<PartOffer>(got[0].message.body).hash, part->hash());
}

TEST_P(RoundTransportSuite, SendsChunksAsTheyGetReadyAndTheMessageBehindThem) {
  Start(2);
  const auto part = UnreadyPayload(kBytes, 2);
  transport(1).SendAhead(TestMember(0), PartKey(4), part);
  MarkReady(*part, 3);
  MarkReady(*part, 1);
  ASSERT_TRUE(sink(0).AwaitChunks(1, PartKey(4), 2));
  EXPECT_TRUE(sink(0).got().empty());

  MarkReady(*part, 0);
  MarkReady(*part, 2);
  Offer(1, PartKey(4), part);

  ASSERT_TRUE(sink(0).AwaitMessages(1));
  EXPECT_EQ(sink(0).got()[0].payload->bytes(), part->bytes());
}

TEST_P(RoundTransportSuite, SendsBytesOnceHoweverOftenTheirMessageIsSent) {
  Start(2);
  const auto part = ReadyPayload(kBytes, 3);

  for (int i = 0; i < 3; ++i) {
    Offer(1, PartKey(4), part);
    ASSERT_TRUE(sink(0).AwaitMessages(i + 1));
  }

  const auto got = sink(0).got();
  EXPECT_EQ(sink(0).asked(), 1);
  EXPECT_EQ(got[2].payload, got[0].payload);
}

TEST_P(RoundTransportSuite, LetsMessagesWithoutBytesOvertakeThoseThatWait) {
  Start(2);
  const auto part = UnreadyPayload(kBytes, 4);
  transport(1).SendAhead(TestMember(0), PartKey(4), part);

  transport(1).Send(TestMember(0), CommitFrom(1, 9), {}, nullptr);

  ASSERT_TRUE(sink(0).AwaitMessages(1));
  EXPECT_EQ(CommittedStep(sink(0).got()[0].message), 9);
}

TEST_P(RoundTransportSuite, GivesTheMessageAloneWhereItsBytesAreNotWanted) {
  Start(2);
  sink(0).SetMemory(
      [](const MemberId&, const PayloadKey&,
         size_t) -> absl::StatusOr<std::shared_ptr<RoundPayload>> {
        return nullptr;
      });

  Offer(1, PartKey(4), ReadyPayload(kBytes, 5));

  ASSERT_TRUE(sink(0).AwaitMessages(1));
  EXPECT_EQ(sink(0).got()[0].payload, nullptr);
}

// The member was too far behind.
TEST_P(RoundTransportSuite, SendsAgainWhatWasNotWantedWhenItCame) {
  Start(2);
  sink(0).SetMemory(
      [](const MemberId&, const PayloadKey&,
         size_t) -> absl::StatusOr<std::shared_ptr<RoundPayload>> {
        return nullptr;
      });
  const auto part = ReadyPayload(kBytes, 5);
  Offer(1, PartKey(4), part);
  ASSERT_TRUE(sink(0).AwaitMessages(1));
  ASSERT_EQ(sink(0).got()[0].payload, nullptr);

  sink(0).SetMemory(nullptr);
  bool came = false;
  for (int i = 0; i < 300 && !came; ++i) {  // members repeat themselves
    Offer(1, PartKey(4), part);
    came = sink(0).AwaitPayloads(1, absl::Milliseconds(100));
  }

  ASSERT_TRUE(came);
  EXPECT_EQ(sink(0).got().back().payload->bytes(), part->bytes());
}

TEST_P(RoundTransportSuite, KeepsPayloadsOfAllKeysAndSendersApart) {
  Start(3);
  std::vector<std::shared_ptr<RoundPayload>> parts;
  const std::vector<PayloadKey> keys = {PartKey(4, 0),
                                        PartKey(4, 1),
                                        PartKey(5, 0),
                                        {PayloadKey::Kind::kResult, 4, 0, 7},
                                        {PayloadKey::Kind::kResult, 4, 0, 8}};

  for (int from = 1; from < 3; ++from) {
    for (const PayloadKey& key : keys) {
      parts.push_back(ReadyPayload(kBytes, 10 + parts.size()));
      Offer(from, key, parts.back());
    }
  }

  ASSERT_TRUE(sink(0).AwaitMessages(parts.size()));
  std::vector<uint64_t> sent, received;
  for (const auto& part : parts) sent.push_back(part->hash());
  for (const auto& got : sink(0).got()) {
    ASSERT_NE(got.payload, nullptr);
    EXPECT_EQ(std::get<PartOffer>(got.message.body).hash, got.payload->hash());
    received.push_back(got.payload->hash());
  }
  EXPECT_THAT(received, ::testing::UnorderedElementsAreArray(sent));
}

TEST_P(RoundTransportSuite, CarriesAPayloadWithoutBytes) {
  Start(2);

  Offer(1, PartKey(4, 3), ReadyPayload(0, 6));

  ASSERT_TRUE(sink(0).AwaitMessages(1));
  ASSERT_NE(sink(0).got()[0].payload, nullptr);
  EXPECT_EQ(sink(0).got()[0].payload->size(), 0u);
}

TEST_P(RoundTransportSuite, SendsNothingToThoseWhoAreNoPeers) {
  Start(3);
  transport(1).SetPeers({Workers()[1], Workers()[2]});

  transport(1).Send(TestMember(0), CommitFrom(1, 1), {}, nullptr);
  transport(2).Send(TestMember(0), CommitFrom(2, 2), {}, nullptr);

  ASSERT_TRUE(sink(0).AwaitMessages(1));
  EXPECT_EQ(CommittedStep(sink(0).got()[0].message), 2);
}

TEST_P(RoundTransportSuite, TakesAPeerInThatComesLater) {
  Start(2);
  transport(1).SetPeers({});
  transport(1).SetPeers(Workers());

  Offer(1, PartKey(4), ReadyPayload(kBytes, 7));

  ASSERT_TRUE(sink(0).AwaitMessages(1));
}

TEST_P(RoundTransportSuite, CallsNoSinkAfterClose) {
  Start(3);
  ASSERT_TRUE(sink(0).AwaitLink(1, /*up=*/true));

  transport(0).Close();
  const size_t before = sink(0).got().size();
  transport(1).Send(TestMember(0), CommitFrom(1, 1), {}, nullptr);
  transport(1).Send(TestMember(2), CommitFrom(1, 2), {}, nullptr);

  ASSERT_TRUE(sink(2).AwaitMessages(1));
  EXPECT_EQ(sink(0).got().size(), before);
}

TEST_P(RoundTransportSuite, ForgetsWhatIsOfNoUseAndGoesOn) {
  Start(2);
  const auto old = UnreadyPayload(kBytes, 8);
  transport(1).SendAhead(TestMember(0), PartKey(4), old);

  transport(1).Forget(5);
  transport(0).Forget(5);
  Offer(1, PartKey(5), ReadyPayload(kBytes, 9));

  ASSERT_TRUE(sink(0).AwaitMessages(1));
  EXPECT_NE(sink(0).got()[0].payload, nullptr);
}

}  // namespace paceline
