// IDX files, good and bad, through OpenBatchSource; and files that are not
// there, of every data set.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/data/data_sets.h"
#include "core/os/files.h"
#include "tests/support/golden.h"
#include "tests/worker/data/data_script.h"
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
