#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/round_recorder.h"
#include "worker/transport/round/round_outbound.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

constexpr size_t kThreeChunks = 2 * kRoundChunkBytes + 1;

class RoundQueueTest : public ::testing::Test {
 protected:
  // Everything that the queue would give, as "m:text", "step/chunk" and
  // "step/chunk m:text".
  std::vector<std::string> TakeAll() {
    std::vector<std::string> taken;
    while (const auto item = queue.TakeNext()) {
      std::vector<std::string> words;
      if (item->chunk >= 0) {
        words.push_back(absl::StrCat(item->key->step, "/", item->chunk));
      }
      if (!item->message.empty()) {
        words.push_back(absl::StrCat("m:", item->message));
      }
      taken.push_back(absl::StrJoin(words, " "));
    }
    EXPECT_FALSE(queue.TakeNext().has_value());
    return taken;
  }

  RoundQueue::Ticket Add(const PayloadKey& key,
                         std::shared_ptr<RoundPayload> payload) {
    return queue.AddPayload(key, &payload);
  }

  std::shared_ptr<RoundPayload> AddReady(const PayloadKey& key) {
    auto payload = ReadyPayload(kThreeChunks, 1);
    const RoundQueue::Ticket ticket = Add(key, payload);
    for (int chunk = 0; chunk < 3; ++chunk) queue.OnReady(key, ticket, chunk);
    return payload;
  }

  RoundQueue queue;
};

TEST_F(RoundQueueTest, GivesMessagesInTheirOrderBeforeChunks) {
  AddReady(PartKey(1));
  queue.AddMessage("a");
  queue.AddMessage("b");

  EXPECT_THAT(TakeAll(), ElementsAre("m:a", "m:b", "1/0", "1/1", "1/2"));
}

TEST_F(RoundQueueTest, DropsAMessageWhoseBytesWereForgotten) {
  AddReady(PartKey(1));
  queue.Forget(2);

  queue.AddMessage("part", PartKey(1));

  EXPECT_FALSE(queue.TakeNext().has_value());
  EXPECT_FALSE(queue.TakeNext().has_value());
}

TEST_F(RoundQueueTest, GivesAMessageWithTheLastOfItsBytes) {
  AddReady(PartKey(1));
  queue.AddMessage("part", PartKey(1));

  EXPECT_THAT(TakeAll(), ElementsAre("1/0", "1/1", "1/2 m:part"));
}

TEST_F(RoundQueueTest, LetsPayloadsTakeTurns) {
  AddReady(PartKey(1));
  AddReady(PartKey(2));

  EXPECT_THAT(TakeAll(), ElementsAre("1/0", "2/0", "1/1", "2/1", "1/2", "2/2"));
}

TEST_F(RoundQueueTest, GivesChunksInTheOrderInWhichTheyGotReady) {
  const auto payload = UnreadyPayload(kThreeChunks, 1);
  const auto ticket = Add(PartKey(1), payload);
  queue.OnReady(PartKey(1), ticket, 2);
  queue.AddMessage("part", PartKey(1));
  EXPECT_THAT(TakeAll(), ElementsAre("1/2"));

  queue.OnReady(PartKey(1), ticket, 0);
  queue.OnReady(PartKey(1), ticket, 1);

  EXPECT_THAT(TakeAll(), ElementsAre("1/0", "1/1 m:part"));
}

TEST_F(RoundQueueTest, GivesBytesOnceAConnection) {
  const auto payload = AddReady(PartKey(1));
  queue.AddMessage("part", PartKey(1));
  TakeAll();

  EXPECT_EQ(Add(PartKey(1), payload), 0u);
  queue.AddMessage("part", PartKey(1));

  EXPECT_THAT(TakeAll(), ElementsAre("m:part"));
}

TEST_F(RoundQueueTest, GivesBytesAgainAfterABreakWhileTheirMessageIsToCome) {
  AddReady(PartKey(1));
  TakeAll();

  queue.OnBroken();
  queue.AddMessage("part", PartKey(1));

  EXPECT_THAT(TakeAll(), ElementsAre("1/0", "1/1", "1/2 m:part"));
}

TEST_F(RoundQueueTest, GivesBytesAgainAfterABreakOnlyWithTheirMessage) {
  const auto payload = AddReady(PartKey(1));
  queue.AddMessage("part", PartKey(1));
  TakeAll();

  queue.OnBroken();
  EXPECT_THAT(TakeAll(), ElementsAre());
  queue.AddMessage("part", PartKey(1));

  EXPECT_THAT(TakeAll(), ElementsAre("1/0", "1/1", "1/2 m:part"));
}

TEST_F(RoundQueueTest, KeepsTheSameMessageOnce) {
  AddReady(PartKey(1));
  for (int i = 0; i < 3; ++i) {
    queue.AddMessage("want");
    queue.AddMessage("part", PartKey(1));
  }

  EXPECT_THAT(TakeAll(), ElementsAre("m:want", "1/0", "1/1", "1/2 m:part"));
}

TEST_F(RoundQueueTest, DropsTheOldestOfTooManyMessages) {
  for (size_t i = 0; i < RoundQueue::kMostMessages + 2; ++i) {
    queue.AddMessage(absl::StrCat(i));
  }

  const std::vector<std::string> taken = TakeAll();

  EXPECT_EQ(taken.size(), RoundQueue::kMostMessages);
  EXPECT_EQ(taken.front(), "m:2");
}

TEST_F(RoundQueueTest, TakesAnotherPayloadInThePlaceOfTheOneBefore) {
  const auto before = UnreadyPayload(kThreeChunks, 1);
  const auto ticket = Add(PartKey(1), before);
  queue.OnReady(PartKey(1), ticket, 0);

  std::shared_ptr<RoundPayload> payload = ReadyPayload(kRoundChunkBytes, 2);
  const auto second = queue.AddPayload(PartKey(1), &payload);
  EXPECT_EQ(payload, before);
  queue.OnReady(PartKey(1), ticket, 1);  // of the one before: too late
  queue.OnReady(PartKey(1), second, 0);

  EXPECT_THAT(TakeAll(), ElementsAre("1/0"));
}

TEST_F(RoundQueueTest, ForgetsPartsAndResultsOfOlderSteps) {
  AddReady(PartKey(1));
  queue.AddMessage("part", PartKey(1));
  AddReady(PartKey(2));

  EXPECT_EQ(queue.Forget(2).size(), 1u);

  EXPECT_THAT(TakeAll(), ElementsAre("2/0", "2/1", "2/2"));
}

}  // namespace
}  // namespace paceline
