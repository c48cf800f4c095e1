#include "worker/record_outbox.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RecordOutbox, HandsEachRecordOutOnceAStream) {
  RecordOutbox<int> outbox(10);
  outbox.Add(1);
  outbox.Add(2);

  EXPECT_THAT(outbox.TakeNew(), ElementsAre(1, 2));
  outbox.Add(3);
  EXPECT_THAT(outbox.TakeNew(), ElementsAre(3));
  EXPECT_THAT(outbox.TakeNew(), IsEmpty());
}

TEST(RecordOutbox, RepeatsWhatWasNotAcknowledgedOnANewStream) {
  RecordOutbox<int> outbox(10);
  for (const int record : {1, 2, 3}) outbox.Add(record);
  outbox.TakeNew();
  outbox.Acknowledge(2);

  outbox.Rewind();

  EXPECT_THAT(outbox.TakeNew(), ElementsAre(3));
}

TEST(RecordOutbox, DropsTheOldestAboveItsCapacityAndCounts) {
  RecordOutbox<int> outbox(2);
  for (const int record : {1, 2, 3}) outbox.Add(record);

  EXPECT_THAT(outbox.TakeNew(), ElementsAre(2, 3));
  EXPECT_EQ(outbox.dropped(), 1);
}

TEST(RecordOutbox, IgnoresAnAcknowledgementFromBeforeClear) {
  RecordOutbox<int> outbox(10);
  outbox.Add(1);
  const int64_t mark = outbox.end();
  outbox.Clear();
  outbox.Add(2);

  outbox.Acknowledge(mark);
  outbox.Rewind();

  EXPECT_THAT(outbox.TakeNew(), ElementsAre(2));
}

}  // namespace
}  // namespace paceline
