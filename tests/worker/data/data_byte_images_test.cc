// IDX and CIFAR files, good and bad, through OpenBatchSource; and files that
// are not there, of every data set.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/data/data_sets.h"
#include "core/os/files.h"
#include "tests/support/golden.h"
#include "tests/worker/data/data_script.h"
#include "worker/data/sample_set.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kImages[] = "train-images-idx3-ubyte";
constexpr char kLabels[] = "train-labels-idx1-ubyte";
constexpr char kTestImages[] = "t10k-images-idx3-ubyte";
constexpr char kTestLabels[] = "t10k-labels-idx1-ubyte";

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
};

TEST_F(IdxTest, GivesTensorsOfTheShapeThatEnginesExpect) {
  const TensorList tensors = WalkAll(spec_).at(0);

  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].dtype, DType::kF32);
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 1, 2, 2));
  EXPECT_EQ(tensors[1].dtype, DType::kI64);
  EXPECT_THAT(tensors[1].shape, ElementsAre(2));
}

TEST_F(IdxTest, RefusesAFileThatIsDamagedOrEndsAnywhere) {
  std::string zipped = Zipped(Idx({3, 2, 2}, Pixels(12)));
  for (size_t length = 0; length < zipped.size(); ++length) {
    SCOPED_TRACE(length);
    RefusalOfImages(zipped.substr(0, length));
  }
  zipped[zipped.size() - 6] ^= 1;  // its CRC
  EXPECT_THAT(RefusalOfImages(zipped), HasSubstr("damaged gzip"));
}

TEST_F(IdxTest, RefusesMoreImagesThanThereIsMemoryFor) {
  ASSERT_TRUE(OpenIdx(spec_.data, 12).ok()) << "just enough";
  // Cut short: nobody sees that.
  folder_.Write(kTestImages, Zipped(Idx({4, 2, 2}, Pixels(1))));

  const absl::Status status = OpenIdx(spec_.data, 12).status();

  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(folder_.Path(kTestImages)), HasSubstr("16 bytes"),
                    HasSubstr("memory for 12")));
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

TEST(IdxFiles, AreReadAsTheyLie) {
  ExpectAnswers("worker/idx", [](const std::string& script) {
    return DataScript().Play(script);
  });
}

constexpr int kPixels = 3072;

uint8_t PixelOf(int record, int at) {
  return static_cast<uint8_t>(record * 40 + at * 7 + at / 1024);
}

std::string Record(const std::string& label, int record) {
  std::string bytes = label;
  for (int i = 0; i < kPixels; ++i) {
    bytes += static_cast<char>(PixelOf(record, i));
  }
  return bytes;
}

std::string Byte(int value) { return std::string(1, static_cast<char>(value)); }

// Five training files of one record, and one test file of two; record i has
// the label i.
class CifarTest : public DataTest {
 protected:
  CifarTest() {
    for (int i = 0; i < 5; ++i) {
      folder_.Write(absl::StrCat("data_batch_", i + 1, ".bin"),
                    Record(Byte(i), i));
    }
    folder_.Write("test_batch.bin", Record(Byte(5), 5) + Record(Byte(9), 9));
    spec_.data = DefaultDataSpec("cifar10");
    spec_.data.path = folder_.path();
    spec_.data.mean = {0};
    spec_.data.deviation = {1.0 / 255};
    spec_.train.batch = 5;
    spec_.train.micro_batch = 5;
  }
};

TEST_F(CifarTest, ReadsPixelsAndLabelsOfEveryFile) {
  const auto all = WalkAll(spec_);

  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0][0].shape, (Shape{5, 3, 32, 32}));
  const std::vector<int32_t> order = SampleOrder(spec_.train.seed, 0, 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(all[0][1].As<int64_t>()[i], order[i]);
    for (const int at : {0, 31, 1024, 3071}) {
      EXPECT_NEAR(all[0][0].As<float>()[i * kPixels + at],
                  PixelOf(order[i], at), 1e-3);
    }
  }
  EXPECT_EQ(all[1][1].As<int64_t>()[1], 9);
  EXPECT_NEAR(all[1][0].As<float>()[kPixels], PixelOf(9, 0), 1e-3);
}

TEST_F(CifarTest, TakesTheFineLabelsOfAHundredClasses) {
  folder_.Write("train.bin", Record(Byte(3) + Byte(99), 0));
  folder_.Write("test.bin", Record(Byte(3) + Byte(0), 1));
  spec_.data = DefaultDataSpec("cifar100");
  spec_.data.path = folder_.path();
  const auto all = WalkAll(spec_);

  EXPECT_EQ(all[0][1].As<int64_t>()[0], 99);
  EXPECT_NEAR(all[0][0].As<float>()[0],
              (PixelOf(0, 0) / 255.0 - 0.5071) / 0.2673, 1e-5);
}

TEST_F(CifarTest, MovesAndMirrorsTrainingImagesOnly) {
  spec_.data.crop = "random";
  spec_.data.flip = 0.5;
  spec_.train.epochs = 40;
  bool moved = false, mirrored = false;
  for (const TensorList& tensors : WalkAll(spec_)) {
    for (int64_t i = 0; i < tensors[0].shape[0]; ++i) {
      const auto values = tensors[0].As<float>().subspan(i * kPixels, kPixels);
      const auto record = static_cast<int>(tensors[1].As<int64_t>()[i]);
      const auto pixel = [&](int y, int x) {
        const bool inside = y >= 0 && y < 32 && x >= 0 && x < 32;
        return inside ? PixelOf(record, y * 32 + x) : 0;
      };
      int fits = 0;
      for (int down = -4; down <= 4; ++down) {
        for (int right = -4; right <= 4; ++right) {
          for (const bool turned : {false, true}) {
            bool same = true;
            for (int at = 0; same && at < 1024; ++at) {
              const int y = at / 32, x = turned ? 31 - at % 32 : at % 32;
              same = std::abs(values[at] - pixel(y - down, x - right)) < 0.01;
            }
            if (!same) continue;
            ++fits;
            moved = moved || down != 0 || right != 0;
            mirrored = mirrored || turned;
            if (record >= 5) {
              EXPECT_TRUE(down == 0 && right == 0 && !turned);
            }
          }
        }
      }
      EXPECT_EQ(fits, 1) << "record " << record;
    }
  }
  EXPECT_TRUE(moved && mirrored);
}

TEST_F(CifarTest, MovesAndMirrorsTheSameWayFromAnyStepOn) {
  spec_.data.crop = "random";
  spec_.data.flip = 0.5;
  spec_.train.epochs = 8;  // a step each
  spec_.train.evaluate_every = 0;
  const auto whole = WalkAll(spec_);
  const auto source = OpenBatchSource(spec_).value();

  source->BeginAt(5, /*evaluated=*/false);

  EXPECT_EQ(BytesOf(WalkAll(*source)),
            BytesOf({whole.begin() + 5, whole.end()}));
}

TEST_F(CifarTest, RefusesHalfARecord) {
  folder_.Write("data_batch_2.bin", Record(Byte(1), 1).substr(1));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("data_batch_2.bin: has 3072 bytes"),
                               HasSubstr("records of 3073")));
  folder_.Write("data_batch_2.bin", "");
  EXPECT_THAT(Refusal(), HasSubstr("has 0 bytes"));
}

TEST_F(CifarTest, NamesALabelThatIsNoClass) {
  folder_.Write("test_batch.bin", Record(Byte(5), 5) + Record(Byte(10), 9));

  EXPECT_THAT(Refusal(), AllOf(HasSubstr("test_batch.bin"),
                               HasSubstr("label 10 of record 1")));
}

// Mapped into memory, such a file would end the worker.
TEST_F(CifarTest, EndsWithAnErrorWhenAFileShrinks) {
  spec_.data.workers = 1;
  spec_.train.epochs = 100;  // more than is loaded ahead
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();
  for (int i = 0; i < 5; ++i) {
    std::filesystem::resize_file(
        folder_.Path(absl::StrCat("data_batch_", i + 1, ".bin")), 100);
  }

  absl::Status first;
  while (first.ok()) {
    const auto batch = (*source)->NextBatch();
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_TRUE(batch->has_value());
    first = (*source)->NextMicroBatch().status();
  }

  EXPECT_EQ(first.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(first.message()), HasSubstr(".bin: ends at byte"));
}

class OpenData : public DataTest {};

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

}  // namespace
}  // namespace paceline
