// Chunks that a sender of the same machine lends, and what it has to show.
#include <unistd.h>

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/round_receiver.h"
#include "worker/transport/near_memory.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// Member 0, to whom member 1 wants to lend a part of step 4.
class RoundBorrower : public RoundReceiver {
 protected:
  RoundBorrower() { Open(); }

  // The receiver's answer to a hello.
  v1::RoundReceipt Greet(RawSender& sender) {
    sender.Write(EncodeRoundHello(header_));
    v1::RoundReceipt receipt;
    EXPECT_TRUE(sender.AwaitReceipt(&receipt));
    EXPECT_NE(receipt.word(), 0u);
    return receipt;
  }
  // Says that the proof is in `place_` of that process.
  void Show(RawSender& sender, int process = getpid()) {
    RoundFrameHeader hello = header_;
    hello.memory = {process, reinterpret_cast<uint64_t>(&place_)};
    sender.Write(EncodeRoundHello(hello));
  }
  // Up to the receiver's word that it can read this process.
  void Introduce(RawSender& sender) {
    place_ = MemoryProof(Greet(sender).word(), header_.from, header_.to);
    Show(sender);
    v1::RoundReceipt receipt;
    ASSERT_TRUE(sender.AwaitReceipt(&receipt));
    EXPECT_TRUE(receipt.readable());
    EXPECT_EQ(receipt.taken(), 0);
  }
  RoundFrameHeader LoanOf(int chunk) const {
    RoundFrameHeader loan = part_header_;
    loan.chunk = chunk;
    loan.checksum = part_->chunk_hash(chunk);
    loan.address = reinterpret_cast<uint64_t>(part_->chunk(chunk).data());
    return loan;
  }
  // A stream on which this is lent ends so.
  static absl::Status EndOfLoan(RawSender& sender,
                                const RoundFrameHeader& loan) {
    sender.Write(EncodeRoundLoan(loan));
    return sender.End();
  }

  // The part has arrived, lent by so many frames.
  void ExpectTaken(int64_t frames) {
    v1::RoundReceipt receipt;
    ASSERT_TRUE(sender_.AwaitReceipt(&receipt));
    EXPECT_EQ(receipt.taken(), frames);
    ASSERT_TRUE(sink_.AwaitMessages(1));
    EXPECT_EQ(sink_.got()[0].payload->bytes(), part_->bytes());
    EXPECT_EQ(node_.plane.stats().bytes_borrowed,
              static_cast<int64_t>(kTwoChunks));
  }

  std::atomic<uint64_t> place_{0};
};

// One by one, or together in one frame.
TEST_F(RoundBorrower, ReadsWhatASenderOfThisMachineLendsIt) {
  Introduce(sender_);
  for (const int chunk : {1, 0}) sender_.Write(EncodeRoundLoan(LoanOf(chunk)));
  sender_.Write(Offer());
  ExpectTaken(2);
}

TEST_F(RoundBorrower, ReadsChunksThatAreLentTogether) {
  Introduce(sender_);
  RoundFrameHeader loan = LoanOf(0);
  loan.further = {part_->chunk_hash(1)};
  sender_.Write(EncodeRoundLoan(loan));
  sender_.Write(Offer());
  ExpectTaken(1);
}

TEST_F(RoundBorrower, FindsTheOneOfSomeChunksThatIsWrong) {
  Introduce(sender_);
  RoundFrameHeader loan = LoanOf(0);
  loan.further = {part_->chunk_hash(0)};

  const absl::Status end = EndOfLoan(sender_, loan);

  EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(end.message(), HasSubstr("chunk 1 of the part"));
  EXPECT_EQ(node_.plane.stats().checksum_errors, 1);
}

TEST_F(RoundBorrower, ReadsNothingOfASenderThatHasNotShownItsMemory) {
  EXPECT_EQ(EndOfLoan(sender_, LoanOf(0)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(node_.plane.stats().frames_refused, 1);
}

// Somebody else's memory, or none: the proof is not there.
TEST_F(RoundBorrower, BelievesNoMemoryThatDoesNotHoldTheProof) {
  place_ = 0x12345678;
  for (const int process : {getpid(), 1, 0, 1 << 30}) {
    RawSender sender(node_.address());
    Greet(sender);
    Show(sender, process);

    EXPECT_EQ(EndOfLoan(sender, LoanOf(0)).code(),
              absl::StatusCode::kInvalidArgument)
        << process;
  }
}

TEST_F(RoundBorrower, ReadsNothingWhereTheProofIsGone) {
  Introduce(sender_);
  place_ = 0;

  EXPECT_EQ(EndOfLoan(sender_, LoanOf(0)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(node_.plane.stats().bytes_borrowed, 0);
}

TEST_F(RoundBorrower, SaysDataLossOfALentChunkThatIsNotThere) {
  Introduce(sender_);
  RoundFrameHeader loan = LoanOf(0);
  loan.address = 16;

  EXPECT_EQ(EndOfLoan(sender_, loan).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace paceline
