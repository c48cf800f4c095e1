#include "core/transfer/round_frame.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/transfer/checksum.h"
#include "core/transfer/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using Span = absl::Span<const uint8_t>;

RoundFrameHeader Header() {
  RoundFrameHeader header;
  header.job = 7;
  header.attempt = 2;
  header.plan_version = 4;
  header.from = {5, 0xfedcba9876543210u};
  header.to = {6, 9};
  return header;
}

RoundFrameHeader PieceHeader(int64_t payload_bytes, int32_t chunk) {
  RoundFrameHeader header = Header();
  header.payload = {2, 300, 12, 0x8000000000000001u, payload_bytes};
  header.chunk = chunk;
  header.checksum = 0x123456789abcdef0u;
  return header;
}

std::string Piece(const RoundFrameHeader& header, int64_t bytes) {
  return EncodeRoundPiecePrefix(header, bytes) +
         std::string(static_cast<size_t>(bytes), 'x');
}

// The bytes in pieces of `piece` each.
std::vector<Span> CutSpans(const std::string& bytes, size_t piece) {
  const Span all(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  std::vector<Span> spans;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    spans.push_back(all.subspan(at, piece));
  }
  return spans;
}

absl::StatusOr<RoundFrameLayout> Parse(const std::string& bytes,
                                       size_t piece = 1 << 20) {
  return ParseRoundFrame(CutSpans(bytes, piece));
}

std::string Text(const std::string& bytes, size_t piece,
                 const std::optional<FrameRange>& range) {
  return range.has_value()
             ? CopyBytes(CutSpans(bytes, piece), range->offset, range->bytes)
             : "";
}

void ExpectRefused(const std::string& bytes, const std::string& why) {
  const auto layout = Parse(bytes);
  ExpectError(layout.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr(why));
}

class RoundFramePieces : public ::testing::TestWithParam<size_t> {};

TEST_P(RoundFramePieces, ReadsBackAPieceHoweverItIsCut) {
  const RoundFrameHeader header = PieceHeader(kMaxRoundDataBytes + 77, 1);
  const std::string bytes = Piece(header, 77);

  const auto layout = Value(Parse(bytes, GetParam()));

  EXPECT_EQ(layout.header, header);
  EXPECT_FALSE(layout.message.has_value());
  EXPECT_EQ(Text(bytes, GetParam(), layout.data), std::string(77, 'x'));
}

TEST_P(RoundFramePieces, ReadsBackAMessageHoweverItIsCut) {
  RoundFrameHeader header = Header();
  header.payload = {1, 4, 0, 0, 1000};
  const std::string bytes = EncodeRoundMessage(header, "hello");

  const auto layout = Value(Parse(bytes, GetParam()));

  EXPECT_EQ(layout.header, header);
  EXPECT_FALSE(layout.data.has_value());
  EXPECT_EQ(Text(bytes, GetParam(), layout.message), "hello");
}

TEST_P(RoundFramePieces, ReadsBackAPieceWithItsMessageHoweverItIsCut) {
  const RoundFrameHeader header = PieceHeader(77, 0);
  const std::string bytes =
      EncodeRoundPiecePrefix(header, 77, "hello") + std::string(77, 'x');
  RoundFrameHeader lent = header;
  lent.address = 16;

  const auto layout = Value(Parse(bytes, GetParam()));
  const std::string loan = EncodeRoundLoan(lent, "hello");
  const auto of_loan = Value(Parse(loan, GetParam()));

  EXPECT_EQ(layout.header, header);
  EXPECT_EQ(Text(bytes, GetParam(), layout.data), std::string(77, 'x'));
  EXPECT_EQ(Text(bytes, GetParam(), layout.message), "hello");
  EXPECT_EQ(of_loan.header, lent);
  EXPECT_EQ(of_loan.data->bytes, 77);
  EXPECT_EQ(Text(loan, GetParam(), of_loan.message), "hello");
}

TEST_P(RoundFramePieces, CopiesAndHashesInOnePass) {
  std::string bytes(100'000, 0);
  SplitMix64 random(3);
  for (char& byte : bytes) byte = static_cast<char>(random.Next());
  std::vector<uint8_t> target(90'000);

  const uint64_t hash =
      CopyAndHash(CutSpans(bytes, GetParam()), 1234, absl::MakeSpan(target));

  EXPECT_EQ(std::memcmp(target.data(), bytes.data() + 1234, target.size()), 0);
  Checksum checksum;
  checksum.Update(target);
  EXPECT_EQ(hash, checksum.Digest());
}

INSTANTIATE_TEST_SUITE_P(Sizes, RoundFramePieces,
                         ::testing::Values(1, 2, 7, 64, 1000, 1 << 20));

TEST(RoundFrame, ReadsHellosAndPiecesThatAreLent) {
  RoundFrameHeader with_memory = Header();
  with_memory.memory = {4711, 0xffffffffffff0008u};
  RoundFrameHeader lent = PieceHeader(kMaxRoundDataBytes + 77, 1);
  lent.address = 0x7fff00000010u;
  RoundFrameHeader small_chunks = PieceHeader(250, 1);
  small_chunks.payload->chunk_bytes = 100;
  small_chunks.address = 8;
  small_chunks.further = {3};
  RoundFrameHeader together = PieceHeader(4 * kMaxRoundDataBytes + 77, 2);
  together.address = 16;
  together.further = {0, 0xfedcba9876543210u};
  struct Case {
    std::string bytes;
    RoundFrameHeader header;
    int64_t payload = 0;
  };
  for (const Case& each :
       {Case{EncodeRoundHello(Header()), Header()},
        {EncodeRoundHello(with_memory), with_memory},
        {EncodeRoundLoan(lent), lent, 77},
        {EncodeRoundLoan(small_chunks), small_chunks, 150},
        {EncodeRoundLoan(together), together, 2 * kMaxRoundDataBytes + 77}}) {
    const auto layout = Value(Parse(each.bytes, 3));

    EXPECT_EQ(layout.header, each.header);
    EXPECT_EQ(layout.data.value_or(FrameRange()).bytes, each.payload);
    EXPECT_FALSE(layout.message.has_value());
  }
}

TEST(RoundFrame, RefusesMorePiecesTogetherThanThereAreOrMayBe) {
  RoundFrameHeader header = PieceHeader(2 * kMaxRoundDataBytes, 0);
  header.address = 16;
  header.further = {1, 2};
  ExpectRefused(EncodeRoundLoan(header), "chunk 0 of 524288 bytes");
  header = PieceHeader(100 * kMaxRoundDataBytes, 0);
  header.address = 16;
  header.further.resize(kMostLentTogether);
  ExpectRefused(EncodeRoundLoan(header), "field 12 with more than 3");
  header.further = {1, 2};
  const std::string twice = EncodeRoundLoan(header);
  ExpectRefused(twice + twice, "field 12 with more than 3");
  header.address = 0;
  ExpectRefused(EncodeRoundLoan(header), "no address");
}

TEST(RoundFrame, RefusesALoanThatNamesNoBytesOrBringsSome) {
  RoundFrameHeader header = PieceHeader(kMaxRoundDataBytes + 77, 2);
  header.address = 16;
  ExpectRefused(EncodeRoundLoan(header), "chunk 2");
  header.payload.reset();
  ExpectRefused(EncodeRoundLoan(header), "no payload");
  header = PieceHeader(77, 0);
  header.address = 16;
  ExpectRefused(EncodeRoundLoan(header) + Piece(PieceHeader(77, 0), 77),
                "an address");
}

TEST(RoundFrame, SkipsFieldsOfLaterVersions) {
  std::string bytes;
  AppendTag(&bytes, 900, WireType::kBytes);
  AppendVarint(&bytes, 3);
  bytes += "abc";
  AppendIntField(&bytes, 901, 5);

  const auto layout = Value(Parse(bytes + EncodeRoundMessage(Header(), "")));

  EXPECT_EQ(layout.header, Header());
}

TEST(RoundFrame, TakesThePayloadsSizeBeforeOrBehindItsKey) {
  std::string bytes;
  AppendIntField(&bytes, 1, 1);
  AppendIntField(&bytes, 7, 5);
  AppendTag(&bytes, 6, WireType::kBytes);
  AppendVarint(&bytes, 2);
  AppendIntField(&bytes, 1, 3);
  AppendTag(&bytes, 15, WireType::kBytes);
  AppendVarint(&bytes, 5);
  bytes += "12345";

  const auto layout = Value(Parse(bytes));

  EXPECT_EQ(layout.header.payload->bytes, 5);
  EXPECT_EQ(layout.header.payload->kind, 3);
}

TEST(RoundFrame, RefusesEveryTruncationOfAPiece) {
  const std::string bytes = Piece(PieceHeader(50, 0), 50);

  int whole = 0;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto layout = Parse(bytes.substr(0, length));
    // A cut between two fields leaves a hello, of which nothing comes.
    if (layout.ok() &&
        (layout->message.has_value() || layout->data.has_value()))
      ++whole;
  }
  EXPECT_EQ(whole, 0);
}

TEST(RoundFrame, TakesAMessageBeforeTheOtherFieldsAsProtobufWritesIt) {
  RoundFrameHeader header = Header();
  header.payload = {1, 4, 0, 0, 1000};
  std::string bytes;
  AppendTag(&bytes, 5, WireType::kBytes);
  AppendVarint(&bytes, 5);
  bytes += "hello" + EncodeRoundHello(header);

  const auto layout = Value(Parse(bytes, 3));

  EXPECT_EQ(layout.header, header);
  EXPECT_EQ(Text(bytes, 3, layout.message), "hello");
}

// A piece of 50 bytes whose payload is changed.
std::string Changed(void (*change)(RoundPayloadHeader&)) {
  RoundFrameHeader header = PieceHeader(50, 0);
  change(*header.payload);
  return Piece(header, 50);
}

TEST(RoundFrame, RefusesWhatCannotBe) {
  const std::string message = EncodeRoundMessage(Header(), "x");
  const int64_t too_long = kMaxRoundMessageBytes + 1;
  std::string padded;
  while (padded.size() < kMaxRoundHeaderBytes) AppendIntField(&padded, 900, 1);
  const std::pair<std::string, std::string> refused[] = {
      {"", "of no job"},
      {message + message, "more than once"},
      {EncodeRoundPiecePrefix(Header(), 1) + "x", "of no payload"},
      {Piece(PieceHeader(50, 0), 49), "with 49 bytes, need 50"},
      {Piece(PieceHeader(50, 0), 51), "with 51 bytes, need 50"},
      {Piece(PieceHeader(50, 1), 10), "need 0"},
      {Piece(PieceHeader(0, 0), 0), "need 0"},
      {Piece(PieceHeader(kMaxRoundDataBytes + 1, 0), 1), "need 262144"},
      {Changed([](auto& p) { p.kind = 4; }), "field 6 cannot be 4"},
      {Changed([](auto& p) { p.kind = 0; }), "field 6 cannot be 0"},
      {Changed([](auto& p) { p.step = -1; }), "field 2 cannot be"},
      {Piece(PieceHeader(int64_t{1} << 41, 0), 50), "field 7 cannot be"},
      {Piece(PieceHeader(50, -1), 50), "field 8 cannot be"},
      {Changed([](auto& p) { p.chunk_bytes = kMaxRoundDataBytes + 1; }),
       "field 14 cannot be 262145"},
      {EncodeRoundMessage(Header(),
                          std::string(static_cast<size_t>(too_long), 'm')),
       "a message of 262145 bytes"},
      {std::string(600'000, 'm'), "a frame of 600000 bytes"},
      {padded + EncodeRoundHello(Header()), "header of more than"}};
  for (const auto& [bytes, why] : refused) ExpectRefused(bytes, why);
}

TEST(RoundFrame, SurvivesRandomBytes) {
  const std::string good = Piece(PieceHeader(50, 0), 50);
  SplitMix64 random(5);

  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (uint64_t flips = 1 + random.Below(4); flips > 0; --flips) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    }
    const auto layout = Parse(bytes, 1 + random.Below(40));
    if (!layout.ok()) {
      EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    } else {
      const FrameRange data = layout->data.value_or(FrameRange());
      EXPECT_LE(data.offset + data.bytes, static_cast<int64_t>(bytes.size()));
    }
  }
}

}  // namespace
}  // namespace paceline
