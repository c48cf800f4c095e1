// IDX files, good and bad, through OpenBatchSource; and files that are not
// there, of every data set.
#include <sys/stat.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/data/data_sets.h"
#include "core/os/read_access.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/byte_images.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kImages[] = "train-images-idx3-ubyte";
constexpr char kLabels[] = "train-labels-idx1-ubyte";
constexpr char kTestImages[] = "t10k-images-idx3-ubyte";
constexpr char kTestLabels[] = "t10k-labels-idx1-ubyte";

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

// 0, 1, 2, ...
std::string Pixels(int count) {
  std::string pixels;
  for (int i = 0; i < count; ++i) pixels += static_cast<char>(i);
  return pixels;
}

// Three training and two test images of 2x2.
class IdxTest : public DataTest {
 protected:
  IdxTest() {
    folder_.Write(kImages, Idx({3, 2, 2}, Pixels(12)));
    folder_.Write(kLabels, Idx({3}, {2, 0, 1}));
    folder_.Write(kTestImages, Idx({2, 2, 2}, Pixels(8)));
    folder_.Write(kTestLabels, Idx({2}, {1, 2}));
    spec_.data.name = "idx";
    spec_.data.path = folder_.path();
    spec_.data.shape = {1, 2, 2};
    spec_.data.classes = 3;
    spec_.train.batch = 2;
    spec_.train.micro_batch = 2;
  }

  // Opening says this when the training images are `bytes`.
  std::string RefusalOfImages(const std::string& bytes) {
    folder_.Write(kImages, bytes);
    const std::string why = Refusal();
    EXPECT_THAT(why, HasSubstr(folder_.Path(kImages)));
    return why;
  }

  // All values and labels of a walk, in order.
  struct Walked {
    std::vector<float> values;
    std::vector<int64_t> labels;
  };
  Walked Walk() {
    Walked walked;
    for (const TensorList& tensors : WalkAll(spec_)) {
      for (const float value : tensors[0].As<float>()) {
        walked.values.push_back(value);
      }
      for (const int64_t label : tensors[1].As<int64_t>()) {
        walked.labels.push_back(label);
      }
    }
    return walked;
  }
};

TEST_F(IdxTest, ScalesPixelsAndKeepsLabelsWithTheirImages) {
  const Walked walked = Walk();

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
  const TensorList tensors = WalkAll(spec_).at(0);

  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].dtype, DType::kF32);
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 1, 2, 2));
  EXPECT_EQ(tensors[1].dtype, DType::kI64);
  EXPECT_THAT(tensors[1].shape, ElementsAre(2));
}

TEST_F(IdxTest, ReadsZippedFilesAsIfTheyWerePlain) {
  const std::vector<float> plain = Walk().values;
  for (const std::string name : {kImages, kTestLabels}) {
    folder_.Write(name + ".gz", Zipped(ReadFile(folder_.Path(name))));
    std::filesystem::remove(folder_.Path(name));
  }

  EXPECT_EQ(Walk().values, plain);
}

TEST_F(IdxTest, ScalesByTheJobsOrTheSetsStatistics) {
  spec_.data.mean = {0.25};
  spec_.data.deviation = {2};
  EXPECT_EQ(Walk().values[12], (0.0f - 0.25f) / 2.0f);

  folder_.Write(kImages, Idx({1, 28, 28}, std::string(784, '\0')));
  folder_.Write(kLabels, Idx({1}, {2}));
  folder_.Write(kTestImages, Idx({0, 28, 28}, ""));
  folder_.Write(kTestLabels, Idx({0}, ""));
  spec_.data = DefaultDataSpec("fashion-mnist");
  spec_.data.path = folder_.path();
  EXPECT_EQ(Walk().values[12], (0.0f - 0.2860f) / 0.3530f);
}

TEST_F(IdxTest, RefusesFilesThatAreNotWhatTheySay) {
  const std::string whole = Idx({3, 2, 2}, Pixels(12));
  std::string floats = whole;
  floats[2] = 0x0d;
  const std::string zipped = Zipped(whole);
  std::string damaged = zipped;
  damaged[damaged.size() - 6] ^= 1;  // its CRC
  const std::pair<std::string, const char*> kBad[] = {
      {"\x89PNG\r\n and so on", "not an IDX file"},
      {"", "not an IDX file"},
      {std::string(3, '\0'), "not an IDX file"},
      {floats, "type 0xd"},
      {Idx({}, ""), "0 dimensions"},
      {Idx(std::vector<uint32_t>(200, 1), "x"), "200 dimensions"},
      {whole.substr(0, whole.size() - 1), "got 11"},
      {whole.substr(0, 9), "cut short in its header"},
      {Idx({3, 2, 2}, Pixels(13)), "longer"},
      {damaged, "damaged gzip"},
      {Idx({~0u, ~0u, ~0u}, "x"), "impossible size"},
      // Nobody can allocate such sizes.
      {Idx({1u << 28, 1u << 28, 1}, "x"), "shape [268435456, 1]"},
  };
  for (const auto& [bytes, why] : kBad) {
    EXPECT_THAT(RefusalOfImages(bytes), HasSubstr(why));
  }
  for (size_t length = 0; length < zipped.size(); ++length) {
    SCOPED_TRACE(length);
    RefusalOfImages(zipped.substr(0, length));
  }
}

// A file need not be read to see that it is not the job's: a gzipped one may
// have a thousand times its own bytes.
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
  folder_.Write(kImages, Idx({3, 2, 2}, Pixels(12)));
  folder_.Write(kLabels, Zipped(Idx({1u << 31}, {2, 0, 1})));

  EXPECT_THAT(Refusal(), HasSubstr("2147483648 labels for the 3 images"));
}

TEST_F(IdxTest, RefusesMoreImagesThanThereIsMemoryFor) {
  ByteImageOptions options;
  options.folder = folder_.path();
  options.shape = spec_.data.shape;
  options.classes = spec_.data.classes;
  options.channels.resize(1);
  options.most_bytes = 12;
  ASSERT_TRUE(ByteImages::OpenIdx(options).ok()) << "just enough";
  // Cut short: nobody sees that.
  folder_.Write(kTestImages, Zipped(Idx({4, 2, 2}, Pixels(1))));

  const absl::Status status = ByteImages::OpenIdx(options).status();

  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(folder_.Path(kTestImages)), HasSubstr("16 bytes"),
                    HasSubstr("memory for 12")));
}

TEST_F(IdxTest, RefusesLabelsAndShapesThatDoNotFit) {
  const std::pair<std::string, const char*> kBad[] = {
      {Idx({4}, {2, 0, 1, 1}), "4 labels for the 3 images"},
      {Idx({3, 1}, {2, 0, 1}), "2 dimensions"},
      {Idx({3}, {2, 3, 7}), "label 3 of sample 1"},
      {Idx({3}, {2, 3, 7}), "set data.classes to 8 or more"},
  };
  for (const auto& [labels, why] : kBad) {
    folder_.Write(kLabels, labels);
    EXPECT_THAT(Refusal(), HasSubstr(why));
  }
  spec_.data.shape = {1, 4, 1};
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("[2, 2]"), HasSubstr("[1, 4, 1]")));
}

TEST_F(IdxTest, NeedsTrainingSamplesAndNoOthers) {
  folder_.Write(kTestImages, Idx({0, 2, 2}, ""));
  folder_.Write(kTestLabels, Idx({0}, ""));
  EXPECT_EQ(Walk().labels.size(), 3u);

  folder_.Write(kImages, Idx({0, 2, 2}, ""));
  folder_.Write(kLabels, Idx({0}, ""));
  EXPECT_THAT(Refusal(), HasSubstr("no training samples"));
}

TEST_F(IdxTest, ReadsValuesThatTakeSeveralChunks) {
  std::string values(5'000'001, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<char>(i * 31 >> 3);
  }
  folder_.Write("big", Zipped(Idx({5'000'001}, values)));

  const auto idx = ReadIdx(folder_.Path("big"),
                           [](const IdxFile&) { return absl::OkStatus(); });

  ASSERT_TRUE(idx.ok()) << idx.status();
  EXPECT_TRUE(std::string(idx->values.begin(), idx->values.end()) == values);
}

class OpenData : public DataTest {};

TEST_F(OpenData, NamesAFileThatIsMissing) {
  const std::pair<const char*, const char*> kFirstFile[] = {
      {"idx", kImages},
      {"cifar10", "data_batch_1.bin"},
      {"cifar100", "train.bin"},
      {"imagefolder", ""},
      {"text", ""},
      {"text-labels", ""},
      {"text-pairs", ""}};
  for (const auto& [name, file] : kFirstFile) {
    spec_.data = DefaultDataSpec(name);
    spec_.data.path = folder_.Path("nowhere");

    const absl::Status status = OpenBatchSource(spec_).status();

    EXPECT_TRUE(absl::IsNotFound(status)) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(spec_.data.path), HasSubstr(file)));
  }
  spec_.data.path = "";
  EXPECT_THAT(Refusal(), HasSubstr("data.path"));
  spec_.data.name = "imagenot";
  EXPECT_THAT(Refusal(), HasSubstr("'imagenot'"));
}

TEST_F(OpenData, OfEveryKindIsReadOnlyWhereJobsMay) {
  LimitReads(ReadAccess{.folders = {folder_.Path("may")}});
  for (const char* const name :
       {"idx", "fashion-mnist", "cifar10", "cifar100", "imagefolder", "text",
        "text-labels", "text-pairs"}) {
    for (const std::string& path : {folder_.path(), folder_.Path("missing"),
                                    std::string("/etc/hostname")}) {
      spec_.data = DefaultDataSpec(name);
      spec_.data.path = path;
      const absl::Status status = OpenBatchSource(spec_).status();
      EXPECT_TRUE(absl::IsPermissionDenied(status)) << name << ": " << status;
      EXPECT_THAT(
          status.message(),
          testing::AllOf(HasSubstr(path), HasSubstr("jobs may not read it")));
    }
  }
  LimitReads(std::nullopt);
}

// Whoever reads a pipe that nobody writes to hangs for good.
TEST_F(OpenData, RefusesAPipeAndAFolderInPlaceOfAFile) {
  const std::pair<const char*, const char*> kFirstFile[] = {
      {"idx", kImages},
      {"cifar10", "data_batch_1.bin"},
      {"text-labels", "train.txt"}};
  for (const auto& [name, file] : kFirstFile) {
    spec_.data = DefaultDataSpec(name);
    spec_.data.path = folder_.path();
    const std::string path = folder_.Path(file);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(Refusal(), HasSubstr("not a regular file")) << name;
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_THAT(Refusal(), HasSubstr("not a regular file")) << name;
  }
}

}  // namespace
}  // namespace paceline
