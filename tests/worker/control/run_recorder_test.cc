#include "worker/control/run_recorder.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> TakeAll(RecordOutbox<int>& outbox) {
  std::vector<int> all;
  while (outbox.has_new()) all.push_back(outbox.TakeNew());
  return all;
}

TEST(RecordOutbox, HandsEachRecordOutOnceAStream) {
  RecordOutbox<int> outbox(10);
  outbox.Add(1);
  outbox.Add(2);

  EXPECT_THAT(TakeAll(outbox), ElementsAre(1, 2));
  outbox.Add(3);
  EXPECT_THAT(TakeAll(outbox), ElementsAre(3));
  EXPECT_THAT(TakeAll(outbox), IsEmpty());
}

TEST(RecordOutbox, RepeatsWhatWasNotAcknowledgedOnANewStream) {
  RecordOutbox<int> outbox(10);
  for (const int record : {1, 2, 3}) outbox.Add(record);
  TakeAll(outbox);
  outbox.Acknowledge(2);

  outbox.Rewind();

  EXPECT_THAT(TakeAll(outbox), ElementsAre(3));
}

TEST(RecordOutbox, KeepsWhatWasNotTakenWhenTheRestIsAcknowledged) {
  RecordOutbox<int> outbox(10);
  for (const int record : {1, 2, 3}) outbox.Add(record);
  outbox.TakeNew();
  outbox.TakeNew();

  outbox.Acknowledge(outbox.taken());
  outbox.Rewind();

  EXPECT_THAT(TakeAll(outbox), ElementsAre(3));
}

TEST(RecordOutbox, DropsTheOldestAboveItsCapacity) {
  RecordOutbox<int> outbox(2);
  for (const int record : {1, 2, 3}) outbox.Add(record);

  EXPECT_THAT(TakeAll(outbox), ElementsAre(2, 3));
}

TEST(RecordOutbox, IgnoresAnAcknowledgementFromBeforeClear) {
  RecordOutbox<int> outbox(10);
  outbox.Add(1);
  TakeAll(outbox);
  const int64_t mark = outbox.taken();
  outbox.Clear();
  outbox.Add(2);

  outbox.Acknowledge(mark);
  outbox.Rewind();

  EXPECT_THAT(TakeAll(outbox), ElementsAre(2));
}

}  // namespace
}  // namespace paceline
