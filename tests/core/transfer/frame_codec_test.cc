#include "core/transfer/frame_codec.h"

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

Tensor Filled(DType dtype, Shape shape, uint64_t seed) {
  Tensor tensor = Tensor::Allocate(dtype, std::move(shape));
  SplitMix64 random(seed);
  for (int64_t i = 0; i < tensor.bytes(); ++i) {
    tensor.data.get()[i] = static_cast<uint8_t>(random.Next());
  }
  return tensor;
}

Frame ActivationFrame() {
  Frame frame;
  frame.header.fence = {JobId{7}, 2, 300};
  frame.header.kind = FrameKind::kActivation;
  frame.header.boundary = 1;
  frame.header.sequence = 41;
  frame.header.batch = {12, BatchPhase::kTrain, 10, 4, 64, true, true, 9000};
  frame.header.micro_batch = 3;
  frame.header.route = 5;
  frame.tensors = {Filled(DType::kF32, {16, 3, 5}, 1),
                   Filled(DType::kI64, {16}, 2)};
  return frame;
}

std::string Flatten(const EncodedFrame& frame) {
  std::string bytes = frame.prefix;
  for (const Tensor& tensor : frame.tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.data.get()),
                 tensor.bytes());
  }
  return bytes;
}

// The bytes in spans of `size` each.
std::vector<ByteSpan> Cut(const std::string& bytes, size_t size) {
  std::vector<ByteSpan> spans;
  for (size_t at = 0; at < bytes.size(); at += size) {
    spans.push_back(
        ByteSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())
            .subspan(at, size));
  }
  return spans;
}

absl::StatusOr<Frame> Decode(const std::string& bytes, size_t size = 1 << 20) {
  const std::vector<ByteSpan> spans = Cut(bytes, size);
  absl::StatusOr<FrameLayout> layout = ParseFrame(spans);
  if (!layout.ok()) return layout.status();
  absl::StatusOr<TensorList> tensors = ReadPayload(spans, *layout);
  if (!tensors.ok()) return tensors.status();
  return Frame{layout->header, *std::move(tensors)};
}

// A message of these header bytes, with a right checksum.
std::string WithTail(std::string header, const std::string& payload) {
  Checksum checksum;
  for (const std::string* part :
       std::initializer_list<const std::string*>{&header, &payload}) {
    checksum.Update(
        {reinterpret_cast<const uint8_t*>(part->data()), part->size()});
  }
  uint64_t digest = checksum.Digest();
  AppendTag(&header, 16, WireType::kFixed64);
  for (int i = 0; i < 8; ++i, digest >>= 8) header.push_back(digest & 0xff);
  if (!payload.empty()) {
    AppendTag(&header, 17, WireType::kBytes);
    AppendVarint(&header, payload.size());
    header += payload;
  }
  return header;
}

std::string SmallHeader() {
  std::string header;
  AppendIntField(&header, 1, 1);  // job
  AppendIntField(&header, 4, 2);  // kind
  AppendIntField(&header, 8, 1);  // phase
  return header;
}

std::string TensorField(const std::string& body) {
  std::string field;
  AppendTag(&field, 15, WireType::kBytes);
  AppendVarint(&field, body.size());
  return field + body;
}

std::string TensorBody(uint64_t dtype, const std::vector<uint64_t>& shape,
                       uint64_t codec) {
  std::string body;
  AppendIntField(&body, 1, static_cast<int64_t>(dtype));
  for (const uint64_t size : shape) {  // not packed
    AppendTag(&body, 2, WireType::kVarint);
    AppendVarint(&body, size);
  }
  AppendIntField(&body, 3, static_cast<int64_t>(codec));
  return body;
}

class FrameCodecCuts : public ::testing::TestWithParam<size_t> {};

TEST_P(FrameCodecCuts, ReadsBackWhatWasWrittenHoweverItIsCut) {
  const Frame sent = ActivationFrame();

  const auto got = Value(Decode(Flatten(EncodeFrame(sent)), GetParam()));

  FrameHeader expected = sent.header;
  expected.tensors = {{DType::kF32, {16, 3, 5}}, {DType::kI64, {16}}};
  EXPECT_EQ(got.header, expected);
  ASSERT_EQ(got.tensors.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Tensor& tensor = got.tensors[i];
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data.get()) % 64, 0u);
    EXPECT_EQ(std::memcmp(tensor.data.get(), sent.tensors[i].data.get(),
                          tensor.bytes()),
              0);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, FrameCodecCuts,
                         ::testing::Values(1, 2, 7, 64, 100, 1 << 20));

TEST(FrameCodec, SharesTheTensorsMemoryInsteadOfCopyingIt) {
  const Frame frame = ActivationFrame();

  const EncodedFrame encoded = EncodeFrame(frame);

  EXPECT_EQ(encoded.tensors[0].data, frame.tensors[0].data);
  EXPECT_LT(encoded.prefix.size(), 100u);
}

TEST(FrameCodec, TakesTensorsWithoutElementsAndWithoutDimensions) {
  Frame frame = ActivationFrame();
  frame.tensors = {Filled(DType::kF32, {0, 4}, 1), Filled(DType::kF32, {}, 2)};

  const auto got = Value(Decode(Flatten(EncodeFrame(frame)), 3));

  EXPECT_EQ(got.tensors[0].bytes(), 0);
  EXPECT_EQ(got.tensors[1].As<uint32_t>()[0],
            frame.tensors[1].As<uint32_t>()[0]);
}

TEST(FrameCodec, SkipsFieldsOfLaterVersions) {
  std::string header = SmallHeader();
  AppendIntField(&header, 900, 77);
  AppendTag(&header, 901, WireType::kFixed64);
  header += std::string(8, 'x');
  AppendTag(&header, 902, WireType::kBytes);
  AppendVarint(&header, 3);
  header += "abc";
  AppendTag(&header, 903, WireType::kFixed32);
  header += std::string(4, 'y');

  const auto got = Value(Decode(WithTail(header, ""), 5));

  EXPECT_EQ(got.header.fence.job, JobId{1});
}

TEST(FrameCodec, FindsEveryFlippedBit) {
  const std::string bytes = Flatten(EncodeFrame(ActivationFrame()));
  const auto original = Value(Decode(bytes));
  SplitMix64 random(11);

  for (size_t bit = 0; bit < bytes.size() * 8; bit += 1 + random.Below(5)) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(Decode(flipped).ok()) << "bit " << bit;
  }
}

TEST(FrameCodec, SaysDataLossWhenOnlyThePayloadIsWrong) {
  std::string bytes = Flatten(EncodeFrame(ActivationFrame()));
  bytes.back() ^= 1;

  EXPECT_EQ(Decode(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(FrameCodec, RefusesEveryTruncation) {
  const std::string bytes = Flatten(EncodeFrame(ActivationFrame()));

  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Decode(bytes.substr(0, length)).ok()) << length;
  }
}

class FrameCodecCodecs : public ::testing::TestWithParam<Codec> {};

TEST_P(FrameCodecCodecs, FloatsArriveAsTheCodecLeavesThemAndLabelsWhole) {
  Frame sent = ActivationFrame();
  SplitMix64 random(3);
  for (float& value : sent.tensors[0].As<float>()) {
    value = static_cast<float>(random.Unit() - 0.5);
  }

  const EncodedFrame encoded = EncodeFrame(sent, GetParam());
  const auto got = Value(Decode(Flatten(encoded), 7));

  EXPECT_EQ(encoded.payload_bytes,
            EncodedBytes(GetParam(), DType::kF32, {16, 3, 5}) + 16 * 8);
  EXPECT_EQ(got.header.tensors[0].codec, GetParam());
  EXPECT_EQ(got.header.tensors[1].codec, Codec::kRaw);
  Tensor expected = Tensor::Allocate(DType::kF32, {16, 3, 5});
  const Tensor wire = Encode(GetParam(), sent.tensors[0]);
  paceline::Decode(GetParam(), wire.As<uint8_t>(), expected);
  EXPECT_EQ(std::memcmp(got.tensors[0].data.get(), expected.data.get(),
                        expected.bytes()),
            0);
  EXPECT_EQ(std::memcmp(got.tensors[1].data.get(), sent.tensors[1].data.get(),
                        16 * 8),
            0);
}

TEST_P(FrameCodecCodecs, AFlippedBitIsFound) {
  std::string bytes = Flatten(EncodeFrame(ActivationFrame(), GetParam()));
  bytes[bytes.size() - 200] ^= 1;

  EXPECT_TRUE(absl::IsDataLoss(Decode(bytes).status()));
}

INSTANTIATE_TEST_SUITE_P(Codecs, FrameCodecCodecs,
                         ::testing::Values(Codec::kBf16, Codec::kF16,
                                           Codec::kInt8),
                         [](const auto& info) {
                           return std::string(CodecName(info.param));
                         });

std::string WithTensor(uint64_t dtype, const std::vector<uint64_t>& shape,
                       uint64_t codec, const std::string& payload) {
  return WithTail(SmallHeader() + TensorField(TensorBody(dtype, shape, codec)),
                  payload);
}

std::string WithField(std::string header, int field, int64_t value) {
  AppendIntField(&header, field, value);
  return WithTail(header, "");
}

TEST(FrameCodec, RefusesWhatCannotBeAndSaysWhy) {
  std::string many = SmallHeader();
  for (int i = 0; i < 17; ++i) many += TensorField(TensorBody(1, {0}, 1));
  std::string endless = SmallHeader();
  while (endless.size() < (1 << 20)) AppendIntField(&endless, 20, 1);
  const std::string too_large = "more bytes than the whole message";
  const std::pair<std::string, std::string> refused[] = {
      {Flatten(EncodeFrame(ActivationFrame())) + "x", "are left"},
      {"", "no checksum"},
      {WithTail("", ""), "no kind"},
      {WithField("", 4, 2), "no phase"},
      {WithField(SmallHeader(), 5, -1), "field 5"},
      {WithField(SmallHeader(), 10, int64_t{1} << 31), "field 10"},
      {WithTail(endless, ""), "65536"},
      {WithTail(many, ""), "more than 16 tensors"},
      {WithTensor(1, std::vector<uint64_t>(9, 0), 1, ""),
       "more than 8 dimensions"},
      {WithTensor(1, {1u << 30}, 1, "1234"), too_large},
      {WithTensor(1, {1ull << 62}, 1, "1234"), too_large},
      {WithTensor(1, {1ull << 32, 1ull << 32}, 1, "1234"), too_large},
      {WithTensor(1, {(1ull << 63) - 1, 2}, 1, "1234"), too_large},
      {WithTensor(1, {0x2000000000000000, 8, 0x2000000000000000}, 1, "1234"),
       too_large},
      // Small on the wire, but not in memory.
      {WithTensor(1, {1 << 20, 1 << 20}, 4, "1234"), too_large},
      {WithTensor(1, {1}, 1, "12345"), "a payload of 5 bytes for tensors of 4"},
      {WithTensor(1, {2}, 2, "12345678"),
       "a payload of 8 bytes for tensors of 4"},
      {WithTensor(7, {1}, 1, "1234"), "field 1 cannot be 7"},
      {WithTensor(1, {1}, 0, "1234"), "without dtype or codec"},
      {WithTensor(1, {1}, 9, "1234"), "field 3 cannot be 9"},
      {WithTensor(1, {~0ull}, 1, "1234"), "negative"},
      {WithTensor(4, {1}, 2, "12"), "codec bf16 for a tensor of"}};
  for (const auto& [bytes, why] : refused) {
    const absl::StatusOr<Frame> frame = Decode(bytes);

    EXPECT_EQ(frame.status().code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(frame.status().message()), HasSubstr(why));
  }
}

TEST(FrameCodec, RefusesATensorHeaderThatRunsOverItsEnd) {
  std::string header = SmallHeader();
  AppendTag(&header, 15, WireType::kBytes);
  AppendVarint(&header, 2);  // says 2, has 6
  header += TensorBody(1, {1}, 1);

  EXPECT_FALSE(Decode(WithTail(header, "1234")).ok());
}

// Random bytes, and frames with random damage: an answer, never a crash, and
// no tensor larger than what came in.
TEST(FrameCodec, SurvivesHostileBytes) {
  const std::string good = Flatten(EncodeFrame(ActivationFrame()));
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    SplitMix64 random(seed);
    std::string bytes = good;
    if (seed % 4 == 0) {
      bytes.assign(random.Below(300), 0);
      for (char& byte : bytes) byte = static_cast<char>(random.Next());
    }
    for (uint64_t edits = random.Below(8); edits > 0 && !bytes.empty();
         --edits) {
      const size_t at = random.Below(std::min<size_t>(bytes.size(), 80));
      switch (random.Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes.erase(at, 1 + random.Below(4));
          break;
        case 2:
          bytes.insert(at, 1 + random.Below(4), '\xff');
          break;
        case 3:
          bytes.resize(random.Below(bytes.size()));
          break;
      }
    }
    const std::vector<ByteSpan> spans = Cut(bytes, 1 + random.Below(64));

    const absl::StatusOr<FrameLayout> layout = ParseFrame(spans);

    if (!layout.ok()) continue;
    int64_t tensor_bytes = 0;
    for (const TensorMeta& tensor : layout->header.tensors) {
      tensor_bytes += tensor.bytes();
    }
    ASSERT_LE(tensor_bytes, static_cast<int64_t>(bytes.size())) << seed;
    ASSERT_EQ(tensor_bytes, layout->payload.bytes) << seed;
    (void)ReadPayload(spans, *layout);
  }
}

TEST(Checksum, IsTheSameHoweverTheBytesAreCut) {
  const std::string bytes = Flatten(EncodeFrame(ActivationFrame()));
  Checksum checksum;
  for (const ByteSpan span : Cut(bytes, 13)) checksum.Update(span);

  Checksum whole;
  whole.Update(Cut(bytes, bytes.size())[0]);
  EXPECT_EQ(checksum.Digest(), whole.Digest());
  // XXH3-64 of nothing, from its specification.
  EXPECT_EQ(Checksum().Digest(), 0x2d06800538d394c2u);
}

}  // namespace
}  // namespace paceline
