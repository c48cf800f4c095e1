// The two ends of a stream as state machines, and what may pass between them.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/transfer/credit.h"
#include "core/transfer/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

Fence FenceOf(int64_t job, int64_t attempt, int64_t plan) {
  return {JobId{job}, attempt, plan};
}

FenceState StateOf(std::optional<Fence> open, const Fence& left) {
  FenceState state{open, {}};
  state.left.Add(left);
  return state;
}

TEST(DecideFence, TakesOnlyWhatIsOfTheOpenRun) {
  const FenceState mine = StateOf(FenceOf(2, 3, 4), FenceOf(2, 3, 3));

  EXPECT_EQ(DecideFence(mine, FenceOf(2, 3, 4)), FenceVerdict::kAccept);
  for (const Fence older :
       {FenceOf(2, 3, 3), FenceOf(2, 2, 9), FenceOf(2, 3, 0)}) {
    EXPECT_EQ(DecideFence(mine, older), FenceVerdict::kDropOlder);
  }
  for (const Fence newer : {FenceOf(2, 3, 5), FenceOf(2, 4, 0),
                            FenceOf(3, 0, 0), FenceOf(1, 9, 9)}) {
    EXPECT_EQ(DecideFence(mine, newer), FenceVerdict::kHoldNewer);
  }
}

TEST(DecideFence, DropsAClosedRunAndAllBelowAndHoldsWhatIsNewer) {
  EXPECT_EQ(DecideFence({}, FenceOf(0, 0, 0)), FenceVerdict::kHoldNewer);
  const FenceState mine = StateOf(std::nullopt, FenceOf(2, 3, 4));

  EXPECT_EQ(DecideFence(mine, FenceOf(2, 3, 4)), FenceVerdict::kDropOlder);
  EXPECT_EQ(DecideFence(mine, FenceOf(2, 1, 9)), FenceVerdict::kDropOlder);
  EXPECT_EQ(DecideFence(mine, FenceOf(2, 3, 5)), FenceVerdict::kHoldNewer);
}

TEST(DecideFence, KeepsTheFencesThatItLeftOfEachJob) {
  FenceState mine = StateOf(std::nullopt, FenceOf(1, 3, 1));
  mine.left.Add(FenceOf(2, 1, 1));
  mine.left.Add(FenceOf(1, 2, 1));

  EXPECT_EQ(DecideFence(mine, FenceOf(1, 3, 1)), FenceVerdict::kDropOlder);
  EXPECT_EQ(DecideFence(mine, FenceOf(1, 4, 1)), FenceVerdict::kHoldNewer);
}

TEST(CreditLedger, GrantsTwiceTheBoundAndThenWhatWasConsumed) {
  CreditLedger ledger(4);
  EXPECT_EQ(ledger.TakeNow(), (Credit{8, 0}));

  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(ledger.Check(i), SequenceVerdict::kNext);
    ledger.OnReceived(10);
  }
  EXPECT_EQ(ledger.Check(8), SequenceVerdict::kAboveCredit);
  EXPECT_EQ(ledger.TakeDue(), std::nullopt);

  ledger.OnConsumed();
  EXPECT_EQ(ledger.TakeDue(), std::nullopt);
  EXPECT_EQ(ledger.Check(8), SequenceVerdict::kNext);
  ledger.OnConsumed();
  EXPECT_EQ(ledger.TakeDue(), (Credit{10, 8}));
  EXPECT_EQ(ledger.TakeDue(), std::nullopt);
}

TEST(CreditLedger, LetsLargeFramesGoAtOnce) {
  CreditLedger ledger(8);
  (void)ledger.TakeNow();

  ledger.OnReceived(CreditLedger::kKeptBytes - 1);
  EXPECT_EQ(ledger.TakeDue(), std::nullopt);
  ledger.OnReceived(1);
  EXPECT_EQ(ledger.TakeDue(), (Credit{16, 2}));
}

TEST(CreditLedger, TellsRepeatsFromGaps) {
  CreditLedger ledger(2);
  ledger.OnReceived(1);

  EXPECT_EQ(ledger.Check(0), SequenceVerdict::kDuplicate);
  EXPECT_EQ(ledger.Check(1), SequenceVerdict::kNext);
  EXPECT_EQ(ledger.Check(2), SequenceVerdict::kGap);
}

// Names a frame by its payload size.
EncodedFrame Numbered(int64_t number) {
  EncodedFrame frame;
  frame.payload_bytes = number;
  return frame;
}

std::vector<int64_t> TakeAll(ResendWindow* window) {
  std::vector<int64_t> taken;
  while (const EncodedFrame* frame = window->TakeNext()) {
    taken.push_back(frame->payload_bytes);
  }
  return taken;
}

ResendWindow WindowOf(int frames) {
  ResendWindow window;
  for (int i = 0; i < frames; ++i) {
    const int64_t sequence = window.Reserve();
    window.Fill(sequence, Numbered(sequence));
  }
  return window;
}

TEST(ResendWindow, SendsAsFarAsGranted) {
  ResendWindow window = WindowOf(5);
  EXPECT_EQ(window.TakeNext(), nullptr) << "before the receiver has spoken";
  EXPECT_FALSE(window.HasCredit(0));
  EXPECT_FALSE(window.all_sent());

  ASSERT_TRUE(window.OnCredit({3, 0}).ok());
  EXPECT_EQ(TakeAll(&window), (std::vector<int64_t>{0, 1, 2}));
  ASSERT_TRUE(window.OnCredit({9, 1}).ok());
  EXPECT_EQ(TakeAll(&window), (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(window.all_sent());
  EXPECT_TRUE(window.HasCredit(4));
  EXPECT_FALSE(window.HasCredit(5));
  EXPECT_EQ(window.kept(), 4u);
}

TEST(ResendWindow, SendsAgainFromWhatTheReceiverHas) {
  ResendWindow window = WindowOf(5);
  ASSERT_TRUE(window.OnCredit({4, 0}).ok());
  ASSERT_EQ(TakeAll(&window).size(), 4u);

  window.OnBroken();
  EXPECT_EQ(window.TakeNext(), nullptr);
  ASSERT_TRUE(window.OnCredit({5, 2}).ok());

  EXPECT_EQ(TakeAll(&window), (std::vector<int64_t>{2, 3, 4}));
}

TEST(ResendWindow, KeepsTheOrderWhenALaterFrameIsReadyFirst) {
  ResendWindow window;
  const int64_t first = window.Reserve();
  const int64_t second = window.Reserve();
  ASSERT_TRUE(window.OnCredit({9, 0}).ok());

  window.Fill(second, Numbered(second));
  EXPECT_EQ(window.TakeNext(), nullptr);
  window.Fill(first, Numbered(first));
  EXPECT_EQ(TakeAll(&window), (std::vector<int64_t>{0, 1}));
}

TEST(ResendWindow, RefusesCreditsThatCannotBe) {
  ResendWindow window = WindowOf(3);
  ASSERT_TRUE(window.OnCredit({2, 0}).ok());
  (void)TakeAll(&window);

  EXPECT_TRUE(absl::IsInvalidArgument(window.OnCredit({9, 3})));
  ASSERT_TRUE(window.OnCredit({9, 2}).ok());
  EXPECT_TRUE(absl::IsAborted(window.OnCredit({9, 1})));
  EXPECT_EQ(window.kept(), 1u);
}

// Was let pass, and the frames to be sent next were then looked for outside of
// those that are kept.
TEST(ResendWindow, RefusesWhatWasNotSentAgainSinceTheBreak) {
  ResendWindow window = WindowOf(4);
  ASSERT_TRUE(window.OnCredit({4, 0}).ok());
  ASSERT_EQ(TakeAll(&window).size(), 4u);
  window.OnBroken();
  ASSERT_TRUE(window.OnCredit({9, 1}).ok());

  EXPECT_TRUE(absl::IsInvalidArgument(window.OnCredit({9, 3})));

  EXPECT_EQ(window.kept(), 3u);
  const EncodedFrame* const next = window.TakeNext();
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->payload_bytes, 1);
  EXPECT_TRUE(window.OnCredit({9, 2}).ok());
}

// Whatever breaks and whenever credits arrive, every frame gets there once and
// in order.
TEST(Streams, DeliverEverythingOnceUnderRandomBreaks) {
  constexpr int kFrames = 200;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SplitMix64 random(seed);
    const int bound = 1 + static_cast<int>(random.Below(4));
    ResendWindow sender;
    CreditLedger receiver(bound);
    int64_t unread = 0;  // received and not consumed
    std::vector<int64_t> delivered;
    bool connected = false;
    int64_t made = 0;
    for (int turns = 0; delivered.size() < kFrames; ++turns) {
      ASSERT_LT(turns, 100000) << "stuck, seed " << seed;
      if (!connected) {
        sender.OnBroken();
        ASSERT_TRUE(sender.OnCredit(receiver.TakeNow()).ok());
        connected = true;
      }
      switch (random.Below(8)) {
        case 0:
          connected = false;
          break;
        case 1:
        case 2:
          if (made < kFrames && sender.HasCredit(1)) {
            const int64_t sequence = sender.Reserve();
            sender.Fill(sequence, Numbered(sequence));
            ++made;
          }
          break;
        case 3:
        case 4:
        case 5:
          if (const EncodedFrame* frame = sender.TakeNext()) {
            const int64_t sequence = frame->payload_bytes;
            if (random.Below(10) == 0) {  // lost with its connection
              connected = false;
              break;
            }
            ASSERT_EQ(receiver.Check(sequence), SequenceVerdict::kNext);
            receiver.OnReceived(1);
            delivered.push_back(sequence);
            ++unread;
          }
          break;
        default:
          if (unread == 0) break;
          --unread;
          receiver.OnConsumed();
          if (const auto credit = receiver.TakeDue()) {
            ASSERT_TRUE(sender.OnCredit(*credit).ok());
          }
      }
      ASSERT_LE(unread, 2 * bound);
    }
    for (int i = 0; i < kFrames; ++i) ASSERT_EQ(delivered[i], i);
  }
}

FrameHeader GoodHeader(FrameKind kind) {
  FrameHeader header;
  header.kind = kind;
  header.batch = {0, BatchPhase::kTrain, 0, 2, 7, false};
  header.micro_batch = 1;
  header.tensors = {{DType::kF32, {3, 8, 2}}};
  if (kind == FrameKind::kActivation) {
    header.tensors.push_back({DType::kI64, {3}});
  }
  return header;
}

void ExpectRefused(const std::vector<FrameHeader>& wrong,
                   const BoundaryExpectation& expected) {
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckFrame(wrong[i], expected))) << i;
  }
}

const BoundaryExpectation kExpected{{{DType::kF32, {8, 2}}}, 4, {}};

TEST(CheckFrame, TakesWhatThePlanSays) {
  EXPECT_TRUE(CheckFrame(GoodHeader(FrameKind::kActivation), kExpected).ok());
  EXPECT_TRUE(CheckFrame(GoodHeader(FrameKind::kGradient), kExpected).ok());
}

// Was let pass whatever it was, and told to the coordinator.
TEST(CheckFrame, RefusesABatchOfMoreSamplesThanItsMicroBatchesHold) {
  FrameHeader header = GoodHeader(FrameKind::kActivation);
  header.batch.samples = 8;  // 2 micro-batches of at most 4
  EXPECT_TRUE(CheckFrame(header, kExpected).ok());
  for (const int64_t samples :
       {int64_t{9}, std::numeric_limits<int64_t>::max()}) {
    header.batch.samples = samples;

    const absl::Status status = CheckFrame(header, kExpected);

    EXPECT_TRUE(absl::IsInvalidArgument(status)) << samples;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(" samples in 2 micro-batches of at most 4"));
  }
}

TEST(CheckFrame, NamesBothShapesWhenTheyDiffer) {
  FrameHeader header = GoodHeader(FrameKind::kActivation);
  header.tensors[0].shape[2] = 5;

  const absl::Status status = CheckFrame(header, kExpected);

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("got F32[3, 8, 5] + I64[3], expected F32[3, 8, 2] + "
                        "I64[3]"));
}

TEST(CheckFrame, RefusesWhatThePlanDoesNotSay) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  std::vector<FrameHeader> wrong(11, GoodHeader(FrameKind::kActivation));
  wrong[0].tensors[0].dtype = DType::kF16;
  wrong[1].tensors.pop_back();
  wrong[2].tensors[1].shape[0] = 2;
  wrong[3].tensors[0].shape[0] = wrong[3].tensors[1].shape[0] = 5;
  wrong[4].tensors[0].shape[0] = wrong[4].tensors[1].shape[0] = 0;
  wrong[5].micro_batch = 2;
  wrong[6].batch.samples = 0;
  wrong[7].tensors[0].shape.clear();
  wrong[8].batch.ordinal = -1;
  wrong[9].batch.step = kLast;
  wrong[10].batch.first_update = kLast;
  wrong.push_back(GoodHeader(FrameKind::kGradient));
  wrong.back().batch.phase = BatchPhase::kEvaluate;

  ExpectRefused(wrong, kExpected);
}

// [n, 4] of floats, a mask [n, 4] beside it, and a label for each of 4 tokens.
const BoundaryExpectation kMasked{
    {{DType::kF32, {4, 2}}, {DType::kU8, {4}}}, 4, {4}};

FrameHeader MaskedHeader() {
  FrameHeader header = GoodHeader(FrameKind::kActivation);
  header.tensors = {
      {DType::kF32, {3, 4, 2}}, {DType::kU8, {3, 4}}, {DType::kI64, {3, 4}}};
  return header;
}

TEST(CheckFrame, TakesWhatGoesBesideAnActivation) {
  EXPECT_TRUE(CheckFrame(MaskedHeader(), kMasked).ok());

  FrameHeader gradient = GoodHeader(FrameKind::kGradient);
  gradient.tensors = {{DType::kF32, {3, 4, 2}}};
  EXPECT_TRUE(CheckFrame(gradient, kMasked).ok()) << "nothing for a mask";
}

TEST(CheckFrame, WantsAGradientForEachFloat) {
  const BoundaryExpectation expected{
      {{DType::kF32, {4, 2}}, {DType::kU8, {4}}, {DType::kF32, {4, 3}}},
      4,
      {4}};
  FrameHeader gradient = GoodHeader(FrameKind::kGradient);
  gradient.tensors = {{DType::kF32, {3, 4, 2}}, {DType::kF32, {3, 4, 3}}};
  EXPECT_TRUE(CheckFrame(gradient, expected).ok());

  std::vector<FrameHeader> wrong(4, gradient);
  wrong[0].tensors.pop_back();
  wrong[1].tensors[1].shape[0] = 2;
  wrong[2].tensors.push_back({DType::kF32, {3, 4, 3}});
  std::swap(wrong[3].tensors[0], wrong[3].tensors[1]);
  ExpectRefused(wrong, expected);
}

TEST(CheckFrame, RefusesAnotherListThanThePlans) {
  std::vector<FrameHeader> wrong(6, MaskedHeader());
  wrong[0].tensors.erase(wrong[0].tensors.begin() + 1);
  wrong[1].tensors[1].dtype = DType::kF32;
  wrong[2].tensors[1].shape = {2, 4};
  wrong[3].tensors[2].shape = {3};
  wrong[4].tensors.push_back({DType::kI64, {3, 4}});
  wrong[5].kind = FrameKind::kGradient;

  ExpectRefused(wrong, kMasked);
}

TEST(CheckFrame, TakesATiedParameterWholeAndNothingElse) {
  const BoundaryExpectation expected{{{DType::kF32, {5, 2}}}, 0, {}};
  for (const FrameKind kind :
       {FrameKind::kTiedGradient, FrameKind::kTiedValue}) {
    FrameHeader header = GoodHeader(FrameKind::kGradient);
    header.kind = kind;
    header.tensors = {{DType::kF32, {5, 2}}};
    EXPECT_TRUE(CheckFrame(header, expected).ok());

    std::vector<FrameHeader> wrong(4, header);
    wrong[0].tensors[0].shape = {5, 3};
    wrong[1].tensors.clear();
    wrong[2].tensors.push_back({DType::kI64, {5}});
    wrong[3].batch.phase = BatchPhase::kEvaluate;
    ExpectRefused(wrong, expected);
  }
}

TEST(CheckFrame, TakesBytesBetweenReplicasUpToTheLargestPart) {
  const BoundaryExpectation expected{{{DType::kU8, {40}}}, 0, {}};
  FrameHeader header = GoodHeader(FrameKind::kReplica);
  header.micro_batch = 1000;  // a name, and no micro-batch
  header.batch.phase = BatchPhase::kEvaluate;
  header.tensors = {{DType::kU8, {1}}};
  EXPECT_TRUE(CheckFrame(header, expected).ok());
  header.tensors = {{DType::kU8, {40}}};
  EXPECT_TRUE(CheckFrame(header, expected).ok());

  std::vector<FrameHeader> wrong(4, header);
  wrong[0].tensors[0].shape = {41};
  wrong[1].tensors.clear();
  wrong[2].tensors[0].dtype = DType::kF32;
  wrong[3].batch.samples = 0;
  ExpectRefused(wrong, expected);
}

}  // namespace
}  // namespace paceline
