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
#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/transfer/checksum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "tests/support/write_safetensors.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
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

// One entry of a header.
std::string Entry(const std::string& name, const std::string& dtype,
                  const std::string& shape, const std::string& offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[",
                      shape, "],\"data_offsets\":[", offsets, "]}");
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

TEST_F(SafetensorsTest, ReadsEntriesInTheOrderOfTheirData) {
  const auto file = Read(File("{" + Entry("late", "U8", "1", "4,5") + "," +
                                  Entry("early", "F32", "1", "0,4") + "}   ",
                              5));

  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)[0].name, "early");
  EXPECT_EQ((*file)[1].name, "late");
}

TEST_F(SafetensorsTest, TakesAFileWithoutTensors) {
  EXPECT_TRUE(Read(File("{}", 0)).ok());
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

TEST_F(SafetensorsTest, RefusesAFileThatIsNoSafetensors) {
  std::string just_above = File("{}", 0);
  just_above[0] = 1;
  just_above[3] = 1;  // 16 MiB + 1
  const std::pair<std::string, const char*> kBad[] = {
      {"", "only 0 bytes"},
      {"1234567", "only 7 bytes"},
      {"PK\x03\x04 a zip, as torch.save makes it",
       "a file of PyTorch's; save the tensors by"},
      {File("not json", 0), "not JSON"},
      {File("", 0), "not JSON"},
      {File("{} {}", 0), "not JSON"},
      {File("{\"\xff\":{}}", 0), "not JSON"},  // not UTF-8
      {std::string(8, '\xff'), "a header of 18446744073709551615 bytes"},
      {just_above, "the limit is 16777216"},
      // Hostile names stay out of the terminal.
      {File("{" + Entry("\\u001b[2J", "F64", "1", "0,8") + "}", 8),
       "'\\x1b[2J'"}};
  for (const auto& [bytes, why] : kBad) {
    EXPECT_THAT(Refusal(bytes), HasSubstr(why));
  }
}

// They were answered with their first 8 bytes as a number.
TEST_F(SafetensorsTest, NamesWhatIsTakenForAFileOfWeights) {
  const std::pair<std::string, const char*> kKinds[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n",
       "a Git LFS pointer, which stands for the file itself: 'git lfs pull'"},
      {"\xef\xbb\xbf\n <!DOCTYPE html><html>Sign in</html>", "a web page"},
      {"<?xml version=\"1.0\"?><Error>NoSuchKey</Error>", "a web page"},
      {absl::StrCat("GGUF", std::string("\3\0\0\0", 4), std::string(99, 'x')),
       "a GGUF file of llama.cpp"},
      {std::string("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.", 15),
       "a file of PyTorch's"},
      {"\x80\x02"
       "ccollections\nOrderedDict\n",
       "a file of PyTorch's"},
      {"\x89HDF\r\n\x1a\n and more", "an HDF5 file"},
      {"\x93NUMPY\x01 and more", "an array of NumPy's"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\2\3 and more", 20), "packed"},
      {R"({"metadata": {"total_size": 7}, "weight_map": {"a": "b"}})",
       "an index of shards"},
      {"{\"error\": \"Invalid username or password.\"}", "a text"},
      {"Entry not found", "a text"},
      {"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg", "a text"},
      {std::string(5000, '\0'), "nothing but zeros"},
  };
  for (const auto& [bytes, what] : kKinds) {
    const std::string why = Refusal(bytes);
    EXPECT_THAT(why, HasSubstr(absl::StrCat("it is ", what)));
    EXPECT_THAT(why, Not(HasSubstr("a header of")));
    EXPECT_THAT(why, Not(HasSubstr("MII"))) << "a secret";
  }
}

TEST_F(SafetensorsTest, SaysHowMuchOfACutFileIsThere) {
  WriteSafetensors(
      path_, {Named("v", DType::kF32, {1}), Named("w", DType::kF32, {3})});
  const std::string whole = Written();

  EXPECT_THAT(Refusal(whole.substr(0, whole.size() - 1)),
              HasSubstr("cut short: it has 15 of 16 bytes"));
}

TEST_F(SafetensorsTest, SaysOfADtypeThatItIsNotRead) {
  for (const char* const dtype : {"F64", "I8", "F8_E4M3"}) {
    const std::string why =
        Refusal(File("{" + Entry("fc.weight", dtype, "1", "0,8") + "}", 8));

    EXPECT_THAT(why,
                HasSubstr(absl::StrCat("tensor 'fc.weight': unknown dtype '",
                                       dtype, "', which is not read")));
    EXPECT_THAT(why, Not(HasSubstr("not a safetensors file")));
  }
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  WriteSafetensors(path_, {Named("w", DType::kF32, {3})});
  const std::string whole = Written();
  for (size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    Refusal(whole.substr(0, length));
  }
}

TEST_F(SafetensorsTest, RefusesOffsetsThatLie) {
  const std::pair<const char*, const char*> kBad[] = {
      {"0,5", "'liar'"},
      {"4,8", "'liar'"},
      {"1000000,1000004", "'liar'"},
      {"4,0", "'liar'"},
      {"9223372036854775803,9223372036854775807", "'liar'"},
      {"0,9223372036854775807", "'liar'"},
      {"-4,0", "negative"},
      {"0,18446744073709551615", "beyond every file"},
      {"0,99999999999999999999999", "no integer"},
      {"0,4.0", "no integer"},
      {"0", "1 data_offsets, need 2"},
      {"0,2,4", "more than two"}};
  for (const auto& [offsets, why] : kBad) {
    EXPECT_THAT(Refusal(File("{" + Entry("liar", "U8", "4", offsets) + "}", 4)),
                HasSubstr(why))
        << offsets;
  }
}

TEST_F(SafetensorsTest, RefusesTensorsThatDoNotLieEndToEnd) {
  const struct {
    const char* first;
    const char* second;
    size_t bytes;
    const char* why;
  } kBad[] = {{"0,4", "2,6", 6, "'b': overlaps"},
              {"0,4", "0,4", 4, "overlaps"},
              {"0,4", "5,9", 9, "'b': leaves a hole"},
              {"1,5", "5,9", 9, "'a': leaves a hole"},
              {"0,4", "4,8", 9, "end at byte 8 of 9"}};
  for (const auto& bad : kBad) {
    EXPECT_THAT(Refusal(File("{" + Entry("a", "U8", "4", bad.first) + "," +
                                 Entry("b", "U8", "4", bad.second) + "}",
                             bad.bytes)),
                HasSubstr(bad.why));
  }
}

TEST_F(SafetensorsTest, RefusesShapesThatDoNotFitTheirBytes) {
  const auto with = [](const std::string& dtype, const std::string& shape) {
    return File("{" + Entry("a", dtype, shape, "0,4") + "}", 4);
  };
  EXPECT_TRUE(Read(with("F32", "1")).ok());
  const struct {
    const char* dtype;
    const char* shape;
    const char* why;
  } kBad[] = {
      {"F32", "4", "takes 16 bytes"},
      {"F16", "1", "takes 2 bytes"},
      {"F32", "-1", "negative"},
      {"F32", "4611686018427387904", "overflows"},
      {"F32", "4294967296,4294967296", "overflows"},
      {"U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4", "more than 16 dimensions"},
      {"U8", "1.5", "no integer"},
      {"F64", "1", "unknown dtype 'F64'"},
      {"bool", "1", "unknown dtype 'bool'"},
      {"f32", "1", "unknown dtype 'f32'"},
      {"", "1", "unknown dtype ''"},
      {"unspecified", "1", "unknown dtype 'unspecified'"}};
  for (const auto& [dtype, shape, why] : kBad) {
    EXPECT_THAT(Refusal(with(dtype, shape)), HasSubstr(why));
  }
}

// Masks that libraries of 2023 kept in their files.
TEST_F(SafetensorsTest, TakesBooleansAsBytes) {
  const auto file = Read(File("{" + Entry("a", "BOOL", "4", "0,4") + "}", 4));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->at(0).tensor.dtype, DType::kU8);
}

TEST_F(SafetensorsTest, RefusesNamesAndFieldsThatComeTwice) {
  const std::string a = Entry("a", "U8", "0", "0,0");
  EXPECT_THAT(Refusal(File("{" + a + "," + a + "}", 0)),
              HasSubstr("two entries named 'a'"));
  EXPECT_THAT(Refusal(File("{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0)),
              HasSubstr("two metadata entries named 'k'"));
  EXPECT_THAT(Refusal(File(R"({"__metadata__":{},"__metadata__":{}})", 0)),
              HasSubstr("two entries"));
  for (const std::string twice :
       {R"("dtype":"U8")", R"("shape":[0])", R"("data_offsets":[0,0])"}) {
    std::string entry = Entry("a", "U8", "0", "0,0");
    entry.insert(entry.size() - 1, "," + twice);
    EXPECT_THAT(Refusal(File("{" + entry + "}", 0)), HasSubstr("two "))
        << entry;
  }
}

TEST_F(SafetensorsTest, RefusesEntriesOfAnotherForm) {
  for (const std::string json :
       {"[]",
        "null",
        "1",
        "\"text\"",
        "true",
        R"({"a":1})",
        R"({"a":null})",
        R"({"a":[]})",
        R"({"a":"b"})",
        R"({"a":{}})",
        R"({"a":{"dtype":"U8","shape":[0]}})",
        R"({"a":{"dtype":"U8","data_offsets":[0,0]}})",
        R"({"a":{"shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":["U8"],"shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":0,"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":["0"],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":{"b":0}}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1}})",
        R"({"__metadata__":[]})",
        R"({"__metadata__":{"k":1}})",
        R"({"__metadata__":{"k":{}}})",
        R"({"__metadata__":{"k":null}})"}) {
    SCOPED_TRACE(json);
    Refusal(File(json, 0));
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
