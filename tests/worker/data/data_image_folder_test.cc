// Folders of pictures, good and bad, through OpenBatchSource.
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "core/data/data_sets.h"
#include "core/obs/log.h"
#include "tests/support/golden.h"
#include "tests/worker/data/data_script.h"

namespace paceline {
namespace {

TEST(Pictures, AreReadAsTheyLie) {
  ExpectAnswers("worker/pictures", [](const std::string& script) {
    return DataScript().Play(script);
  });
}

// Two classes of ten and twelve pictures of 8 x 8.
class ImageFolderTest : public DataTest {
 protected:
  ImageFolderTest() {
    for (int i = 0; i < 10; ++i) {
      folder_.Write(absl::StrCat("train/cat/", i, ".png"), GreyPng(10 + i));
    }
    for (int i = 0; i < 12; ++i) {
      folder_.Write(absl::StrCat("train/dog/", i + 10, ".PNG"),
                    GreyPng(100 + i));
    }
    spec_.data = DefaultDataSpec("imagefolder");
    spec_.data.path = folder_.path();
    spec_.data.shape = {1, 8, 8};
    spec_.data.resize = 8;
    spec_.data.classes = 2;
    spec_.data.mean = {0};
    spec_.data.deviation = {1.0 / 255};
    spec_.train.batch = 22;
    spec_.train.micro_batch = 4;
  }

  ~ImageFolderTest() override { SetLogSink(nullptr); }

  void CollectLog() {
    SetLogSink([this](LogLevel, const std::string& line) {
      absl::MutexLock lock(&mutex_);
      log_.push_back(line);
    });
  }
  int LoggedWith(const std::string& part) {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(
        std::count_if(log_.begin(), log_.end(), [&](const std::string& line) {
          return absl::StrContains(line, part);
        }));
  }

  // The levels of an epoch (8 x 8 equal pixels each), sorted, with labels.
  std::multimap<int, int64_t> Levels() {
    std::multimap<int, int64_t> levels;
    for (const TensorList& tensors : WalkAll(spec_)) {
      for (int64_t i = 0; i < tensors[0].shape[0]; ++i) {
        levels.emplace(static_cast<int>(tensors[0].As<float>()[i * 64] + 0.5f),
                       tensors[1].As<int64_t>()[i]);
      }
    }
    return levels;
  }

  absl::Mutex mutex_;
  std::vector<std::string> log_;
};

// Every byte of two epochs over pictures that differ everywhere.
std::string Walk(JobSpec spec, int workers) {
  spec.data.workers = workers;
  spec.train.epochs = 2;
  return BytesOf(WalkAll(spec));
}

class AugmentedTest : public ImageFolderTest {
 protected:
  AugmentedTest() {
    std::filesystem::remove_all(folder_.Path("train"));
    for (int i = 0; i < 11; ++i) {
      folder_.Write(absl::StrCat("a/", i, ".jpg"),
                    EncodeJpeg(Slope(40 + i, 30), {.progressive = i % 2 == 0}));
      folder_.Write(absl::StrCat("b/", i, ".png"), EncodePng(Slope(9, 40 + i)));
    }
    spec_.data.shape = {3, 8, 12};
    spec_.data.resize = 0;
    spec_.data.crop = "random-resized";
    spec_.data.flip = 0.5;
  }
};

TEST_F(AugmentedTest, GivesTheSameBytesWhateverTheNumberOfLoaders) {
  const std::string alone = Walk(spec_, 1);

  EXPECT_EQ(alone.size(), 2u * 22 * (3 * 8 * 12 * 4 + 8));
  EXPECT_TRUE(Walk(spec_, 3) == alone);
  EXPECT_TRUE(Walk(spec_, 8) == alone);
}

TEST_F(AugmentedTest, DrawsAnewForEveryEpochAndSeed) {
  const auto sorted_epochs = [this] {
    // By sample: the sums of each picture's values, in two epochs.
    spec_.train.epochs = 2;
    std::vector<std::vector<float>> pictures;
    for (const TensorList& tensors : WalkAll(spec_)) {
      const auto values = tensors[0].As<float>();
      for (size_t i = 0; i < values.size(); i += 288) {
        pictures.emplace_back(values.begin() + i, values.begin() + i + 288);
      }
    }
    std::sort(pictures.begin(), pictures.begin() + 22);
    std::sort(pictures.begin() + 22, pictures.end());
    return pictures;
  };
  const auto drawn = sorted_epochs();
  EXPECT_NE(std::vector(drawn.begin(), drawn.begin() + 22),
            std::vector(drawn.begin() + 22, drawn.end()));
  spec_.train.seed = 2;
  EXPECT_NE(sorted_epochs(), drawn);

  spec_.data.crop = "center";
  spec_.data.flip = 0;
  const auto plain = sorted_epochs();
  EXPECT_EQ(std::vector(plain.begin(), plain.begin() + 22),
            std::vector(plain.begin() + 22, plain.end()));
}

TEST_F(AugmentedTest, MirrorsWhenItIsSure) {
  spec_.data.crop = "center";
  spec_.data.flip = 0;
  const auto plain = WalkAll(spec_);
  spec_.data.flip = 1;
  const auto mirrored = WalkAll(spec_);

  const auto straight = plain[0][0].As<float>();
  const auto turned = mirrored[0][0].As<float>();
  EXPECT_NE(straight[0], turned[0]);
  for (int x = 0; x < 12; ++x) EXPECT_EQ(straight[x], turned[11 - x]);
}

TEST_F(ImageFolderTest, PutsTheNextPictureInThePlaceOfACorruptOne) {
  CollectLog();
  folder_.Write("train/cat/3.png", GreyPng(13).substr(0, 60));
  folder_.Write("train/dog/21.PNG", "\xff\xd8\xff nothing");
  spec_.train.epochs = 2;

  const auto levels = Levels();

  EXPECT_EQ(levels.size(), 44u) << "batches keep their sizes";
  EXPECT_EQ(levels.count(13), 0u);
  EXPECT_EQ(levels.count(14), 4u) << "itself and in the other's place, twice";
  EXPECT_EQ(levels.count(10), 4u) << "the first follows the last";
  EXPECT_EQ(levels.find(10)->second, 0) << "with its own label";
  EXPECT_EQ(LoggedWith("image skipped"), 2) << "once each";
  EXPECT_EQ(LoggedWith("train/cat/3.png"), 1);
  EXPECT_EQ(LoggedWith("no good PNG"), 1);
  EXPECT_EQ(LoggedWith("skipped=2 of=22"), 1);
}

TEST_F(ImageFolderTest, GivesTheSameBytesAroundCorruptPictures) {
  folder_.Write("train/cat/3.png", "");
  folder_.Write("train/cat/4.png", "");

  EXPECT_TRUE(Walk(spec_, 4) == Walk(spec_, 1));
}

TEST_F(ImageFolderTest, SkipsAPictureThatVanishedOrLies) {
  CollectLog();
  spec_.train.epochs = 9;
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();
  std::string lying = GreyPng(13);
  lying[16] = 0x7f;  // wider than anything, and a wrong checksum
  folder_.Write("train/cat/3.png", lying);
  std::filesystem::remove(folder_.Path("train/cat/4.png"));

  WalkAll(**source);

  EXPECT_EQ(LoggedWith("image skipped"), 2);
  EXPECT_EQ(LoggedWith("No such file"), 1);
}

// Labels that were changed between stop and resume were not noticed.
TEST_F(ImageFolderTest, KnowsItsFilesByTheirNamesAndClasses) {
  const auto facts = [this] { return OpenBatchSource(spec_).value()->Facts(); };
  const DataFacts before = facts();
  EXPECT_EQ(before.classes, "cat\ndog");
  EXPECT_EQ(facts().contents, before.contents);

  std::filesystem::rename(folder_.Path("train/cat/7.png"),
                          folder_.Path("train/dog/7.png"));
  EXPECT_NE(facts().contents, before.contents);

  std::filesystem::rename(folder_.Path("train/cat"), folder_.Path("train/emu"));
  EXPECT_EQ(facts().classes, "dog\nemu");
}

// Sixteen pictures are looked at; the others had only names.
TEST_F(ImageFolderTest, KnowsItsFilesByTheirSizesAndNotByTheirTimes) {
  const auto contents = [this] {
    return OpenBatchSource(spec_).value()->Facts().contents;
  };
  folder_.Write("val/dog/0.png", GreyPng(1));
  const uint64_t before = contents();

  for (const std::string name : {"train/cat/7.png", "val/dog/0.png"}) {
    const std::string old = ReadFile(folder_.Path(name));
    folder_.Write(name, old + "x");
    EXPECT_NE(contents(), before) << name;
    folder_.Write(name, old);
    EXPECT_EQ(contents(), before) << name;
  }
}

// A picture of 6 x 4 in four colours, as a camera sees it, and what one must
// see: the corners tell all eight ways apart.
TEST_F(ImageFolderTest, TurnsPicturesAsTheCameraHasNoted) {
  const int kCorners[8][4] = {// top left, top right, bottom left, right
                              {10, 60, 110, 160}, {60, 10, 160, 110},
                              {160, 110, 60, 10}, {110, 160, 10, 60},
                              {10, 110, 60, 160}, {110, 10, 160, 60},
                              {160, 60, 110, 10}, {60, 160, 10, 110}};
  Picture picture = Plain(16, 16, {0});
  for (int y = 0; y < 16; ++y) {
    for (int x = 0; x < 16; ++x) {
      picture.values[y * 16 + x] =
          static_cast<uint8_t>(10 + 50 * (x / 8) + 100 * (y / 8));
    }
  }
  spec_.data.shape = {1, 16, 16};
  spec_.data.resize = 16;
  spec_.data.path = folder_.Path("turned");
  spec_.train.batch = spec_.train.micro_batch = 2;
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool jpeg : {true, false}) {
      const std::string file = WithOrientation(
          jpeg ? EncodeJpeg(picture, {.quality = 100}) : EncodePng(picture),
          orientation);
      folder_.Write("turned/cat/0.png", file);
      folder_.Write("turned/dog/0.png", file);
      for (const bool mirrored : {false, true}) {
        spec_.data.flip = mirrored ? 1 : 0;
        const TensorList batch = WalkAll(spec_).front();

        const int* const corner = kCorners[orientation - 1];
        const auto at = [&](int x, int y) {
          return batch[0].As<float>()[y * 16 + (mirrored ? 15 - x : x)];
        };
        SCOPED_TRACE(absl::StrCat(orientation, jpeg ? " jpeg" : " png"));
        EXPECT_NEAR(at(2, 2), corner[0], 3);
        EXPECT_NEAR(at(13, 2), corner[1], 3);
        EXPECT_NEAR(at(2, 13), corner[2], 3);
        EXPECT_NEAR(at(13, 13), corner[3], 3);
      }
    }
  }
}

// The middle of what one sees is cut out of a picture that stands.
TEST_F(ImageFolderTest, CutsATurnedPictureAsItIsSeen) {
  Picture picture = Plain(32, 16, {10});  // lies; seen, it stands
  for (int y = 0; y < 16; ++y) {
    for (int x = 0; x < 32; ++x) {
      if (x >= 8 && x < 24) picture.values[y * 32 + x] = 200;
    }
  }
  spec_.data.shape = {1, 16, 16};
  spec_.data.resize = 16;
  spec_.data.path = folder_.Path("turned");
  spec_.train.batch = spec_.train.micro_batch = 2;
  for (const char* const name : {"turned/cat/0.png", "turned/dog/0.png"}) {
    folder_.Write(name, WithOrientation(EncodePng(picture), 6));
  }

  const TensorList batch = WalkAll(spec_).front();

  for (const float value : batch[0].As<float>()) EXPECT_NEAR(value, 200, 96);
  EXPECT_NEAR(batch[0].As<float>()[8 * 16 + 8], 200, 1);
}

}  // namespace
}  // namespace paceline
