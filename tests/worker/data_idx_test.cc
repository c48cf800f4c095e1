// IDX files, good and bad, through the public door: OpenBatchSource.
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/model/data_sets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/byte_images.h"
#include "worker/data/open.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Header and values of an IDX file of bytes.
std::string Idx(const std::vector<uint32_t>& sizes, const std::string& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(size >> shift);
    }
  }
  return bytes + values;
}

std::string Zipped(const std::string& bytes) {
  z_stream stream = {};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, /*gzip=*/15 + 16, 8,
               Z_DEFAULT_STRATEGY);
  std::string zipped(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(zipped.data());
  stream.avail_out = zipped.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  zipped.resize(stream.total_out);
  deflateEnd(&stream);
  return zipped;
}

// Three training and two test images of 2x2, in a folder that goes away.
class IdxTest : public ::testing::Test {
 protected:
  IdxTest() {
    std::string pattern = absl::StrCat(::testing::TempDir(), "/idxXXXXXX");
    folder_ = mkdtemp(pattern.data());
    Write("train-images-idx3-ubyte", Idx({3, 2, 2}, Pixels(12)));
    Write("train-labels-idx1-ubyte", Idx({3}, {2, 0, 1}));
    Write("t10k-images-idx3-ubyte", Idx({2, 2, 2}, Pixels(8)));
    Write("t10k-labels-idx1-ubyte", Idx({2}, {1, 2}));
    spec_.data.name = "idx";
    spec_.data.path = folder_;
    spec_.data.shape = {1, 2, 2};
    spec_.data.classes = 3;
    spec_.train.batch = 2;
    spec_.train.micro_batch = 2;
  }

  ~IdxTest() override {
    for (const std::string& path : written_) unlink(path.c_str());
    rmdir(folder_.c_str());
  }

  // 0, 1, 2, ...
  static std::string Pixels(int count) {
    std::string pixels;
    for (int i = 0; i < count; ++i) pixels += static_cast<char>(i);
    return pixels;
  }

  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_, "/", name);
  }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    written_.push_back(Path(name));
  }

  void Remove(const std::string& name) { unlink(Path(name).c_str()); }

  // The error of opening; fails the test when there is none.
  absl::Status Refusal() {
    const absl::Status status = OpenBatchSource(spec_).status();
    EXPECT_FALSE(status.ok());
    return status;
  }

  // What opening says when the training images are `bytes`.
  std::string RefusalOfImages(const std::string& bytes) {
    Write("train-images-idx3-ubyte", bytes);
    const absl::Status status = Refusal();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(Path("train-images-idx3-ubyte")));
    return std::string(status.message());
  }

  std::string folder_;
  std::vector<std::string> written_;
  JobSpec spec_;
};

// All values and labels of a walk, in order.
struct Walked {
  std::vector<float> values;
  std::vector<int64_t> labels;
};

Walked WalkThrough(BatchSource& source) {
  Walked walked;
  for (;;) {
    const auto batch = source.NextBatch();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || !batch->has_value()) return walked;
    for (int i = 0; i < (*batch)->micro_batches; ++i) {
      const auto tensors = source.NextMicroBatch();
      EXPECT_TRUE(tensors.ok()) << tensors.status();
      if (!tensors.ok()) return walked;
      for (const float value : (*tensors)[0].As<float>()) {
        walked.values.push_back(value);
      }
      for (const int64_t label : (*tensors)[1].As<int64_t>()) {
        walked.labels.push_back(label);
      }
    }
  }
}

TEST_F(IdxTest, ScalesPixelsAndKeepsLabelsWithTheirImages) {
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();

  const Walked walked = WalkThrough(**source);

  const std::vector<int32_t> order = SampleOrder(spec_.train.seed, 0, 3);
  const std::vector<int64_t> labels = {2, 0, 1};
  ASSERT_EQ(walked.labels.size(), 5u);
  ASSERT_EQ(walked.values.size(), 20u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(walked.labels[i], labels[order[i]]);
    const float pixel = static_cast<float>(4 * order[i] + 3);
    EXPECT_EQ(walked.values[4 * i + 3], (pixel / 255 - 0.5f) / 0.5f);
  }
  EXPECT_EQ(walked.labels[3], 1) << "the test set keeps its order";
  EXPECT_EQ(walked.labels[4], 2);
}

TEST_F(IdxTest, GivesTensorsOfTheShapeThatEnginesExpect) {
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_TRUE((*source)->NextBatch().ok());

  const auto tensors = (*source)->NextMicroBatch();

  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].dtype, DType::kF32);
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(2, 1, 2, 2));
  EXPECT_EQ((*tensors)[1].dtype, DType::kI64);
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(2));
}

TEST_F(IdxTest, ReadsZippedFilesAsIfTheyWerePlain) {
  const auto plain = OpenBatchSource(spec_);
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const std::string name :
       {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::ifstream file(Path(name), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    Write(name + ".gz", Zipped(bytes));
    Remove(name);
  }

  const auto zipped = OpenBatchSource(spec_);

  ASSERT_TRUE(zipped.ok()) << zipped.status();
  EXPECT_EQ(WalkThrough(**zipped).values, WalkThrough(**plain).values);
}

TEST_F(IdxTest, ScalesByTheJobsOwnStatistics) {
  spec_.data.mean = {0.25};
  spec_.data.deviation = {2};
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();

  const Walked walked = WalkThrough(**source);

  EXPECT_EQ(walked.values[12], (0.0f - 0.25f) / 2.0f);
}

TEST_F(IdxTest, ScalesFashionMnistByItsOwnStatistics) {
  Write("train-images-idx3-ubyte", Idx({1, 28, 28}, std::string(784, '\0')));
  Write("train-labels-idx1-ubyte", Idx({1}, {2}));
  Write("t10k-images-idx3-ubyte", Idx({0, 28, 28}, ""));
  Write("t10k-labels-idx1-ubyte", Idx({0}, ""));
  spec_.data = DefaultDataSpec("fashion-mnist");
  spec_.data.path = folder_;
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();

  const Walked walked = WalkThrough(**source);

  EXPECT_EQ(walked.values[12], (0.0f - 0.2860f) / 0.3530f);
}

TEST_F(IdxTest, NamesAMissingFileAndWhatToDo) {
  Remove("t10k-labels-idx1-ubyte");

  const absl::Status status = Refusal();

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(Path("t10k-labels-idx1-ubyte")), HasSubstr("data.path")));
}

TEST_F(IdxTest, NamesTheFolderThatDoesNotExist) {
  spec_.data.path = Path("nowhere");

  const absl::Status status = Refusal();

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("nowhere")));
}

// Reading a pipe nobody writes to would hang the worker for good.
TEST_F(IdxTest, RefusesAPipe) {
  Remove("train-images-idx3-ubyte");
  ASSERT_EQ(mkfifo(Path("train-images-idx3-ubyte").c_str(), 0600), 0);

  EXPECT_THAT(std::string(Refusal().message()),
              HasSubstr("not a regular file"));
}

TEST_F(IdxTest, RefusesWhatIsNotIdx) {
  EXPECT_THAT(RefusalOfImages("\x89PNG\r\n and so on"),
              HasSubstr("not an IDX file"));
  EXPECT_THAT(RefusalOfImages(""), HasSubstr("not an IDX file"));
  EXPECT_THAT(RefusalOfImages(std::string(3, '\0')),
              HasSubstr("not an IDX file"));
}

TEST_F(IdxTest, RefusesOtherTypesAndRanks) {
  std::string floats = Idx({3, 2, 2}, Pixels(12));
  floats[2] = 0x0d;
  EXPECT_THAT(RefusalOfImages(floats), HasSubstr("type 0xd"));
  EXPECT_THAT(RefusalOfImages(Idx({}, "")), HasSubstr("0 dimensions"));
  EXPECT_THAT(RefusalOfImages(Idx(std::vector<uint32_t>(200, 1), "x")),
              HasSubstr("200 dimensions"));
}

TEST_F(IdxTest, RefusesAFileCutShort) {
  const std::string whole = Idx({3, 2, 2}, Pixels(12));
  EXPECT_THAT(RefusalOfImages(whole.substr(0, whole.size() - 1)),
              AllOf(HasSubstr("got 11"), HasSubstr("says 12")));
  EXPECT_THAT(RefusalOfImages(whole.substr(0, 9)),
              HasSubstr("cut short in its header"));
}

TEST_F(IdxTest, RefusesAFileThatGoesOn) {
  EXPECT_THAT(RefusalOfImages(Idx({3, 2, 2}, Pixels(13))), HasSubstr("longer"));
}

TEST_F(IdxTest, RefusesEveryTruncationOfAZippedFile) {
  const std::string zipped = Zipped(Idx({3, 2, 2}, Pixels(12)));
  for (size_t length = 0; length < zipped.size(); ++length) {
    SCOPED_TRACE(length);
    RefusalOfImages(zipped.substr(0, length));
  }
}

TEST_F(IdxTest, RefusesAZippedFileThatIsDamaged) {
  std::string zipped = Zipped(Idx({3, 2, 2}, Pixels(12)));
  zipped[zipped.size() - 6] ^= 1;  // its CRC

  EXPECT_THAT(RefusalOfImages(zipped), HasSubstr("damaged gzip"));
}

TEST_F(IdxTest, RefusesSizesThatOverflow) {
  EXPECT_THAT(RefusalOfImages(Idx({~0u, ~0u, ~0u}, "x")),
              HasSubstr("impossible size"));
}

// What a file has need not be read to see that it is not the job's: a gzipped
// one may have a thousand times its own bytes.
TEST_F(IdxTest, RefusesByTheHeaderAlone) {
  for (const bool zipped : {false, true}) {
    SCOPED_TRACE(zipped);
    const auto refusal = [&](const std::vector<uint32_t>& sizes) {
      // Cut short, which is what somebody who reads on would say.
      const std::string bytes = Idx(sizes, Pixels(12));
      return RefusalOfImages(zipped ? Zipped(bytes) : bytes);
    };
    EXPECT_THAT(refusal({3, 1u << 28}), HasSubstr("shape [268435456]"));
    EXPECT_THAT(refusal({1u << 28, 28, 28}), HasSubstr("shape [28, 28]"));
    EXPECT_THAT(refusal({1u << 31, 2, 2}), HasSubstr("2147483648 samples"));
  }
  Write("train-images-idx3-ubyte", Idx({3, 2, 2}, Pixels(12)));
  Write("train-labels-idx1-ubyte", Zipped(Idx({1u << 31}, {2, 0, 1})));

  EXPECT_THAT(std::string(Refusal().message()),
              HasSubstr("2147483648 labels for the 3 images"));
}

TEST_F(IdxTest, RefusesMoreImagesThanThereIsMemoryFor) {
  ByteImageOptions options;
  options.folder = folder_;
  options.shape = spec_.data.shape;
  options.classes = spec_.data.classes;
  options.channels.resize(1);
  options.most_bytes = 12;
  ASSERT_TRUE(ByteImages::OpenIdx(options).ok()) << "just enough";
  // Cut short: nobody sees that.
  Write("t10k-images-idx3-ubyte", Zipped(Idx({4, 2, 2}, Pixels(1))));

  const absl::Status status = ByteImages::OpenIdx(options).status();

  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(Path("t10k-images-idx3-ubyte")),
                    HasSubstr("16 bytes"), HasSubstr("memory for 12")));
}

TEST_F(IdxTest, RefusesImagesOfAnotherShape) {
  spec_.data.shape = {1, 4, 1};
  EXPECT_THAT(std::string(Refusal().message()),
              AllOf(HasSubstr("[2, 2]"), HasSubstr("[1, 4, 1]")));
}

TEST_F(IdxTest, RefusesCountsThatDiffer) {
  Write("train-labels-idx1-ubyte", Idx({4}, {2, 0, 1, 1}));

  EXPECT_THAT(std::string(Refusal().message()),
              HasSubstr("4 labels for the 3 images"));
}

TEST_F(IdxTest, RefusesLabelsOfTwoDimensions) {
  Write("train-labels-idx1-ubyte", Idx({3, 1}, {2, 0, 1}));

  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("2 dimensions"));
}

TEST_F(IdxTest, NamesTheLabelThatIsNoClass) {
  Write("train-labels-idx1-ubyte", Idx({3}, {2, 3, 7}));

  EXPECT_THAT(std::string(Refusal().message()),
              AllOf(HasSubstr("label 3 of sample 1"),
                    HasSubstr("set data.classes to 8 or more")));
}

TEST_F(IdxTest, RefusesAnEmptyTrainingSet) {
  Write("train-images-idx3-ubyte", Idx({0, 2, 2}, ""));
  Write("train-labels-idx1-ubyte", Idx({0}, ""));

  EXPECT_THAT(std::string(Refusal().message()),
              HasSubstr("no training samples"));
}

TEST_F(IdxTest, TakesAnEmptyTestSet) {
  Write("t10k-images-idx3-ubyte", Idx({0, 2, 2}, ""));
  Write("t10k-labels-idx1-ubyte", Idx({0}, ""));

  const auto source = OpenBatchSource(spec_);

  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(WalkThrough(**source).labels.size(), 3u);
}

TEST_F(IdxTest, RefusesAFolderInPlaceOfAFile) {
  Remove("train-images-idx3-ubyte");
  ASSERT_EQ(mkdir(Path("train-images-idx3-ubyte").c_str(), 0777), 0);

  EXPECT_THAT(std::string(Refusal().message()),
              HasSubstr(Path("train-images-idx3-ubyte")));

  rmdir(Path("train-images-idx3-ubyte").c_str());
}

TEST_F(IdxTest, NeedsAPath) {
  spec_.data.path = "";

  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("data.path"));
}

TEST(OpenBatchSource, NamesAnUnknownDataSet) {
  JobSpec spec;
  spec.data.name = "imagenot";

  const absl::Status status = OpenBatchSource(spec).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'imagenot'"));
}

constexpr auto kTakeAny = [](const IdxFile&) { return absl::OkStatus(); };

TEST(ReadIdx, RefusesAHugePromiseWithoutAllocatingIt) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/lying-idx-", getpid());
  // 2^56 values: an allocation of that size would end the test.
  std::ofstream(path, std::ios::binary)
      << Idx({1u << 28, 1u << 28}, "twelve bytes");

  const auto idx = ReadIdx(path, kTakeAny);
  unlink(path.c_str());

  EXPECT_TRUE(absl::IsInvalidArgument(idx.status())) << idx.status();
  EXPECT_THAT(std::string(idx.status().message()), HasSubstr("got 12"));
}

TEST(ReadIdx, ReadsValuesThatTakeSeveralChunks) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/big-idx-", getpid());
  std::string values(5'000'001, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<char>(i * 31 >> 3);
  }
  std::ofstream(path, std::ios::binary)
      << Zipped(Idx({static_cast<uint32_t>(values.size())}, values));

  const auto idx = ReadIdx(path, kTakeAny);
  unlink(path.c_str());

  ASSERT_TRUE(idx.ok()) << idx.status();
  EXPECT_TRUE(std::string(idx->values.begin(), idx->values.end()) == values);
}

}  // namespace
}  // namespace paceline
