#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/transfer/checksum.h"
#include "core/transfer/frame_codec.h"
#include "core/transfer/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using Span = absl::Span<const uint8_t>;

FrameHeader Header() {
  FrameHeader header;
  header.fence = {JobId{7}, 2, 4};
  header.from = {WorkerId{5}, {0xfedcba9876543210u}};
  header.to = {WorkerId{6}, {9}};
  return header;
}

FrameHeader ChunkHeader(int64_t payload_bytes, int32_t chunk) {
  FrameHeader header = Header();
  header.payload = {PayloadKey::Kind::kResult, 300, 12, 0x8000000000000001u};
  header.payload_bytes = payload_bytes;
  header.chunk = chunk;
  return header;
}

constexpr uint64_t kChecksum = 0x123456789abcdef0u;

std::string Chunk(const FrameHeader& header, int64_t bytes) {
  return EncodeRoundChunkPrefix(header, bytes, kChecksum) +
         std::string(static_cast<size_t>(bytes), 'x');
}

// The bytes in slices of `size` each.
std::vector<Span> CutSpans(const std::string& bytes, size_t size) {
  const Span all(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  std::vector<Span> spans;
  for (size_t at = 0; at < bytes.size(); at += size) {
    spans.push_back(all.subspan(at, size));
  }
  return spans;
}

absl::StatusOr<FrameLayout> Parse(const std::string& bytes,
                                  size_t size = 1 << 20) {
  return ParseRoundFrame(CutSpans(bytes, size));
}

std::string Text(const std::string& bytes, size_t size,
                 const std::optional<FrameRange>& range) {
  return range.has_value()
             ? CopyBytes(CutSpans(bytes, size), range->offset, range->bytes)
             : "";
}

void ExpectRefused(const std::string& bytes, const std::string& why) {
  const auto layout = Parse(bytes);
  ExpectError(layout.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr(why));
}

class RoundFrameCuts : public ::testing::TestWithParam<size_t> {};

TEST_P(RoundFrameCuts, ReadsBackAChunkHoweverItIsCut) {
  const FrameHeader header = ChunkHeader(kMaxRoundDataBytes + 77, 1);
  const std::string bytes = Chunk(header, 77);

  const auto layout = Value(Parse(bytes, GetParam()));

  EXPECT_EQ(layout.header, header);
  EXPECT_FALSE(layout.message.has_value());
  EXPECT_EQ(Text(bytes, GetParam(), layout.data), std::string(77, 'x'));
}

TEST_P(RoundFrameCuts, ReadsBackAMessageHoweverItIsCut) {
  FrameHeader header = Header();
  header.payload = {PayloadKey::Kind::kPart, 4, 0, 0};
  header.payload_bytes = 1000;
  const std::string bytes = EncodeRoundMessage(header, "hello");

  const auto layout = Value(Parse(bytes, GetParam()));

  EXPECT_EQ(layout.header, header);
  EXPECT_FALSE(layout.data.has_value());
  EXPECT_EQ(Text(bytes, GetParam(), layout.message), "hello");
}

TEST_P(RoundFrameCuts, ReadsBackAChunkWithItsMessageHoweverItIsCut) {
  const FrameHeader header = ChunkHeader(77, 0);
  const std::string bytes =
      EncodeRoundChunkPrefix(header, 77, kChecksum, "hello") +
      std::string(77, 'x');

  const auto layout = Value(Parse(bytes, GetParam()));

  EXPECT_EQ(layout.header, header);
  EXPECT_EQ(Text(bytes, GetParam(), layout.data), std::string(77, 'x'));
  EXPECT_EQ(Text(bytes, GetParam(), layout.message), "hello");
}

TEST_P(RoundFrameCuts, CopiesAndHashesInOnePass) {
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

INSTANTIATE_TEST_SUITE_P(Sizes, RoundFrameCuts,
                         ::testing::Values(1, 2, 7, 64, 1000, 1 << 20));

TEST(RoundFrame, ReadsHellos) {
  const auto layout = Value(Parse(EncodeRoundHello(Header()), 3));

  EXPECT_EQ(layout.header, Header());
  EXPECT_FALSE(layout.message.has_value());
  EXPECT_FALSE(layout.data.has_value());
}

TEST(RoundFrame, ReadsChunksOfAnySize) {
  FrameHeader header = ChunkHeader(250, 1);
  header.chunk_bytes = 100;
  const std::string bytes = Chunk(header, 100);

  const auto layout = Value(Parse(bytes, 3));

  EXPECT_EQ(layout.header, header);
  EXPECT_EQ(layout.data->bytes, 100);
}

// An older sender said so where its memory could be read.
TEST(RoundFrame, SkipsThePlaceOfASendersMemory) {
  std::string bytes = EncodeRoundHello(Header());
  AppendFixed64Field(&bytes, 10, 0x7fff00000010u);
  AppendBytesField(&bytes, 11, "\x08\x10");
  AppendBytesField(&bytes, 12, std::string(24, 'x'));

  const auto layout = Value(Parse(bytes));

  EXPECT_EQ(layout.header, Header());
  EXPECT_FALSE(layout.data.has_value());
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
  AppendIntField(&bytes, 1, 2);
  AppendTag(&bytes, 15, WireType::kBytes);
  AppendVarint(&bytes, 5);
  bytes += "12345";

  const auto layout = Value(Parse(bytes));

  EXPECT_EQ(layout.header.payload_bytes, 5);
  EXPECT_EQ(layout.header.payload->kind, PayloadKey::Kind::kResult);
}

TEST(RoundFrame, RefusesEveryTruncationOfAChunk) {
  const std::string bytes = Chunk(ChunkHeader(50, 0), 50);

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
  FrameHeader header = Header();
  header.payload = {PayloadKey::Kind::kPart, 4, 0, 0};
  header.payload_bytes = 1000;
  std::string bytes;
  AppendTag(&bytes, 5, WireType::kBytes);
  AppendVarint(&bytes, 5);
  bytes += "hello" + EncodeRoundHello(header);

  const auto layout = Value(Parse(bytes, 3));

  EXPECT_EQ(layout.header, header);
  EXPECT_EQ(Text(bytes, 3, layout.message), "hello");
}

// A chunk of 50 bytes whose header is changed.
std::string Changed(void (*change)(FrameHeader&)) {
  FrameHeader header = ChunkHeader(50, 0);
  change(header);
  return Chunk(header, 50);
}

TEST(RoundFrame, RefusesWhatCannotBe) {
  const std::string message = EncodeRoundMessage(Header(), "x");
  const int64_t too_long = kMaxRoundMessageBytes + 1;
  std::string padded;
  while (padded.size() < kMaxRoundHeaderBytes) AppendIntField(&padded, 900, 1);
  const std::pair<std::string, std::string> refused[] = {
      {"", "of no job"},
      {message + message, "more than once"},
      {EncodeRoundChunkPrefix(Header(), 1, 0) + "x", "of no payload"},
      {Chunk(ChunkHeader(50, 0), 49), "with 49 bytes, need 50"},
      {Chunk(ChunkHeader(50, 0), 51), "with 51 bytes, need 50"},
      {Chunk(ChunkHeader(50, 1), 10), "need 0"},
      {Chunk(ChunkHeader(0, 0), 0), "need 0"},
      {Chunk(ChunkHeader(kMaxRoundDataBytes + 1, 0), 1), "need 262144"},
      {Changed([](auto& h) { h.payload->kind = PayloadKey::Kind{4}; }),
       "field 1 cannot be 4"},
      {Changed([](auto& h) { h.payload->kind = PayloadKey::Kind{}; }),
       "of no kind"},
      {Changed([](auto& h) { h.payload->step = -1; }), "field 2 cannot be"},
      {Chunk(ChunkHeader(int64_t{1} << 41, 0), 50),
       "a payload of 2199023255552 bytes"},
      {Chunk(ChunkHeader(50, -1), 50), "field 8 cannot be"},
      {Changed([](auto& h) { h.chunk_bytes = kMaxRoundDataBytes + 1; }),
       "in chunks of 262145"},
      {EncodeRoundMessage(Header(),
                          std::string(static_cast<size_t>(too_long), 'm')),
       "a message of 262145 bytes"},
      {std::string(600'000, 'm'), "a frame of 600000 bytes"},
      {padded + EncodeRoundHello(Header()), "header of more than"}};
  for (const auto& [bytes, why] : refused) ExpectRefused(bytes, why);
}

TEST(RoundFrame, SurvivesRandomBytes) {
  const std::string good = Chunk(ChunkHeader(50, 0), 50);
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
