// Weights files that we wrote come back; files that lie do not come in.
#include "core/weights/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/random.h"
#include "core/transfer/checksum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/temp_folder.h"
#include "tests/support/write_safetensors.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

NamedTensor Named(std::string name, DType dtype, Shape shape) {
  Tensor tensor = Tensor::Allocate(dtype, std::move(shape));
  for (int64_t i = 0; i < tensor.bytes(); ++i) {
    tensor.data.get()[i] = static_cast<uint8_t>(i * 37 + name.size());
  }
  return {std::move(name), std::move(tensor)};
}

// Length and JSON, then `data` bytes of zeros.
std::string File(const std::string& json, size_t data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(uint64_t{json.size()} >> (8 * i));
  }
  return bytes + json + std::string(data, '\0');
}

class SafetensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<NamedTensor>> ReadAll() {
    return ReadSafetensors(path_, [](const std::vector<TensorPlace>& tensors) {
      std::set<std::string> names;
      for (const TensorPlace& place : tensors) names.insert(place.name);
      return names;
    });
  }
  absl::StatusOr<std::vector<NamedTensor>> Read(const std::string& bytes) {
    unlink(path_.c_str());  // a new file: truncating one may sync the disk
    std::ofstream(path_, std::ios::binary) << bytes;
    return ReadAll();
  }

  // Returns the error of reading `bytes`; fails the test when they are
  // accepted.
  std::string Refusal(const std::string& bytes) {
    const absl::Status status = Read(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << bytes.substr(0, 200);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    return std::string(status.message());
  }

  std::string Written() const { return ReadFile(path_); }

  const TempFolder folder_;
  const std::string path_ = folder_.Path("weights.safetensors");
};

// "JSON, BYTES" is a header and how many zeros follow, else "raw BYTES", with
// escapes as C has them, all of the file.
TEST_F(SafetensorsTest, ReadsWhatIsOne) {
  ExpectAnswers("core/safetensors", [this](const std::string& question) {
    std::string bytes;
    const size_t comma = question.rfind(", ");
    if (question.starts_with("raw")) {
      EXPECT_TRUE(absl::CUnescape(
          question.substr(std::min<size_t>(4, question.size())), &bytes))
          << question;
    } else {
      bytes = File(question.substr(0, comma),
                   std::stoul(question.substr(comma + 2)));
    }
    const auto file = Read(bytes);
    if (!file.ok()) {
      return absl::StrReplaceAll(file.status().ToString(), {{path_, "FILE"}});
    }
    std::string said = "is one\n";
    for (const auto& [name, tensor] : *file) {
      absl::StrAppend(&said, name, " ", DTypeName(tensor.dtype), " [",
                      absl::StrJoin(tensor.shape, ", "), "]\n");
    }
    return said;
  });
}

TEST_F(SafetensorsTest, GivesBackWhatWasWritten) {
  const std::vector<NamedTensor> tensors = {
      Named("blocks.0.weight", DType::kF32, {3, 4}),
      Named("a \"quoted\" \\ name\n é", DType::kU8, {5}),
      Named("empty", DType::kF32, {0, 7}), Named("scalar", DType::kI64, {}),
      Named("half", DType::kBF16, {2})};
  WriteSafetensors(path_, tensors);

  const auto all = ReadAll();

  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), tensors.size());
  for (const NamedTensor& written : tensors) {
    const auto read = std::find_if(
        all->begin(), all->end(),
        [&](const NamedTensor& each) { return each.name == written.name; });
    ASSERT_NE(read, all->end()) << written.name;
    EXPECT_EQ(read->tensor.dtype, written.tensor.dtype);
    EXPECT_EQ(read->tensor.shape, written.tensor.shape);
    EXPECT_EQ(std::memcmp(read->tensor.data.get(), written.tensor.data.get(),
                          read->tensor.bytes()),
              0)
        << read->name;
  }
}

TEST_F(SafetensorsTest, SumsUpWhatWasWritten) {
  WriteSafetensors(
      path_, {Named("w", DType::kF32, {3, 4}), Named("n", DType::kI64, {})},
      {{"format", "pt"}});
  const std::string bytes = Written();

  const auto summary = SummarizeSafetensors(path_);

  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->metadata, ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(summary->file_bytes, static_cast<int64_t>(bytes.size()));
  Sha256 hash;
  hash.Update(bytes);
  EXPECT_EQ(summary->sha256, hash.HexDigest());
  ASSERT_EQ(summary->tensors.size(), 2u);
  const TensorPlace& first = summary->tensors[0];
  EXPECT_EQ(first.name, "w");
  EXPECT_EQ(first.shape, (Shape{3, 4}));
  EXPECT_EQ(first.bytes, 48);
  EXPECT_EQ(std::memcmp(&bytes[first.offset],
                        Named("w", DType::kF32, {3, 4}).tensor.data.get(), 48),
            0);
}

TEST_F(SafetensorsTest, HashesAFileOfManyPieces) {
  WriteSafetensors(path_, {Named("w", DType::kU8, {(5 << 20) / 2})});
  Sha256 hash;
  hash.Update(Written());

  EXPECT_EQ(SummarizeSafetensors(path_)->sha256, hash.HexDigest());
}

TEST_F(SafetensorsTest, SumsUpNoFileThatLiesOrIsNotThere) {
  EXPECT_EQ(SummarizeSafetensors(path_ + "-nowhere").status().code(),
            absl::StatusCode::kNotFound);
  WriteSafetensors(path_, {Named("w", DType::kF32, {3})});
  const std::string whole = Written();
  std::ofstream(path_, std::ios::binary) << whole.substr(0, whole.size() - 1);

  EXPECT_EQ(SummarizeSafetensors(path_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsTest, RefusesFoldersAndPipes) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadAll().status().message()),
              HasSubstr("no regular file"));
  EXPECT_THAT(
      std::string(
          SummarizeSafetensors(::testing::TempDir()).status().message()),
      HasSubstr("no regular file"));
}

TEST_F(SafetensorsTest, SaysHowMuchOfACutFileIsThere) {
  WriteSafetensors(
      path_, {Named("v", DType::kF32, {1}), Named("w", DType::kF32, {3})});
  const std::string whole = Written();

  EXPECT_THAT(Refusal(whole.substr(0, whole.size() - 1)),
              HasSubstr("cut short: it has 15 of 16 bytes"));
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  WriteSafetensors(path_, {Named("w", DType::kF32, {3})});
  const std::string whole = Written();
  for (size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    Refusal(whole.substr(0, length));
  }
}

TEST_F(SafetensorsTest, RefusesDeepNestingAtOnce) {
  constexpr int kDeep = 4 << 20;
  EXPECT_FALSE(Refusal(File(std::string(kDeep, '['), 0)).empty());
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(Refusal(File(objects, 0)).empty());
  EXPECT_FALSE(
      Refusal(
          File(R"({"a":{"dtype":"U8","shape":)" + std::string(kDeep, '['), 0))
          .empty());
}

// Thousands of small damages: some leave a valid file, none may crash, and
// what is accepted must be consistent.
TEST_F(SafetensorsTest, SurvivesRandomDamage) {
  WriteSafetensors(
      path_,
      {Named("first.weight", DType::kF32, {2, 3}),
       Named("first.bias", DType::kF16, {3}), Named("count", DType::kI64, {})},
      {{"format", "pt"}});
  const std::string whole = Written();
  constexpr char kJsonBytes[] = "0123456789,:[]{}\"-.eE \\ntu";
  SplitMix64 random(20240229);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    SCOPED_TRACE(round);
    std::string bytes = whole;
    for (uint64_t damage = random.Below(4) + 1; damage > 0; --damage) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(5)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes[at] = kJsonBytes[random.Below(sizeof(kJsonBytes) - 1)];
          break;
        case 2:
          bytes.erase(at, random.Below(8) + 1);
          break;
        case 3:
          bytes.insert(
              at, bytes.substr(random.Below(bytes.size()), random.Below(16)));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8)));
      }
      if (bytes.empty()) bytes = "{";
    }
    const auto file = Read(bytes);
    if (!file.ok()) {
      ++refused;
      ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    int64_t total = 0;
    for (const NamedTensor& named : *file) {
      ASSERT_GE(named.tensor.bytes(), 0);
      total += named.tensor.bytes();
    }
    ASSERT_LT(total, static_cast<int64_t>(bytes.size()));
  }

  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace paceline
