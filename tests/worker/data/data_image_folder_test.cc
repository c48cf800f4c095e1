// Folders of pictures, good and bad, through OpenBatchSource.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "core/data/data_sets.h"
#include "core/obs/log.h"
#include "tests/worker/data/data_files.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A grey level that names a picture.
std::string Level(int level) {
  return EncodePng(Plain(8, 8, {static_cast<uint8_t>(level)}));
}

// Two classes of ten and twelve pictures of 8 x 8.
class ImageFolderTest : public DataTest {
 protected:
  ImageFolderTest() {
    for (int i = 0; i < 10; ++i) {
      folder_.Write(absl::StrCat("train/cat/", i, ".png"), Level(10 + i));
    }
    for (int i = 0; i < 12; ++i) {
      folder_.Write(absl::StrCat("train/dog/", i + 10, ".PNG"), Level(100 + i));
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

  // The first error while the job runs.
  absl::Status FirstError() {
    const auto source = OpenBatchSource(spec_).value();
    while (const auto batch = source->NextBatch().value()) {
      for (int i = 0; i < batch->micro_batches; ++i) {
        const auto tensors = source->NextMicroBatch();
        if (!tensors.ok()) return tensors.status();
      }
    }
    return absl::OkStatus();
  }

  absl::Mutex mutex_;
  std::vector<std::string> log_;
};

// With a split, and without.
TEST_F(ImageFolderTest, LabelsPicturesByTheirFolders) {
  for (const std::string& path : {folder_.path(), folder_.Path("train")}) {
    spec_.data.path = path;
    const auto levels = Levels();

    ASSERT_EQ(levels.size(), 22u);
    for (const auto& [level, label] : levels) {
      EXPECT_EQ(label, level < 100 ? 0 : 1) << level;
    }
  }
}

TEST_F(ImageFolderTest, EvaluatesOnTheSecondSplitInItsOrder) {
  for (const char* const split : {"test", "val"}) {  // val is preferred
    for (int i = 0; i < 3; ++i) {
      folder_.Write(absl::StrCat(split, "/dog/", i, ".png"),
                    Level((*split == 'v' ? 200 : 150) + i));
    }
  }
  const TensorList last = WalkAll(spec_).back();

  EXPECT_THAT(last[0].shape, ElementsAre(3, 1, 8, 8));
  EXPECT_NEAR(last[0].As<float>()[0], 200, 1e-3);
  EXPECT_NEAR(last[0].As<float>()[128], 202, 1e-3);
  EXPECT_THAT(last[1].As<int64_t>(), ElementsAre(1, 1, 1))
      << "classes are numbered by the training split";
}

TEST_F(ImageFolderTest, NamesTheFilesOfTheTestSplitAndTheClasses) {
  spec_.kind = "infer";
  spec_.train.steps = spec_.train.epochs = 0;
  folder_.Write("names/b/1.png", Level(1));
  folder_.Write("names/b/2\n.png", Level(1));
  folder_.Write("names/a/3.png", Level(1));
  spec_.data.path = folder_.Path("names");
  const auto names = [this] {
    const auto source = OpenBatchSource(spec_);
    EXPECT_TRUE(source.ok()) << source.status();
    return (*source)->TestNames();
  };

  EXPECT_EQ(names().files, "a/3.png\nb/1.png\nb/2?.png\n");
  EXPECT_EQ(names().classes, "a\nb\n");
  spec_.infer.samples = 2;
  spec_.train = ForInference(spec_.infer, spec_.train.seed);
  EXPECT_EQ(names().files, "a/3.png\nb/1.png\n");
  spec_.data.path = folder_.Path("names/a");
  EXPECT_EQ(names().files, "3.png\n");
  EXPECT_EQ(names().classes, "") << "nobody has said";
}

// Its pictures have one split, or no classes.
TEST_F(ImageFolderTest, InfersWithWhatPicturesThereAre) {
  spec_.kind = "infer";
  spec_.train.steps = spec_.train.epochs = 0;
  spec_.train.micro_batch = 22;
  const auto labels = [this](const std::string& folder) {
    spec_.data.path = folder;
    std::vector<int64_t> labels;
    for (const TensorList& tensors : WalkAll(spec_)) {
      const auto here = tensors[1].As<int64_t>();
      labels.insert(labels.end(), here.begin(), here.end());
    }
    return labels;
  };
  std::vector<int64_t> by_class(10, 0);
  by_class.resize(22, 1);
  EXPECT_EQ(labels(folder_.Path("train")), by_class);
  EXPECT_EQ(labels(folder_.Path("train/cat")),
            std::vector<int64_t>(10, kNoLabel));
  folder_.Write("none/notes.txt", "x");
  spec_.data.path = folder_.Path("none");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("none: no sub-folders, and no .jpg"),
                               HasSubstr("point data.path to pictures")));
  spec_ = JobSpec();
  spec_.data = DefaultDataSpec("imagefolder");
  spec_.data.path = folder_.Path("train/cat");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("no sub-folders"),
                               HasSubstr("pictures lie in one folder a class")))
      << "nothing to learn from";
}

TEST_F(ImageFolderTest, ScalesByImageNetsStatisticsUnlessTold) {
  spec_.data.shape = {3, 8, 8};
  spec_.data.mean.clear();
  spec_.data.deviation.clear();
  std::filesystem::remove_all(folder_.Path("train"));
  folder_.Write("a/1.png", Level(51));
  folder_.Write("b/1.png", Level(51));

  const TensorList first = WalkAll(spec_).front();

  EXPECT_NEAR(first[0].As<float>()[0], (0.2 - 0.485) / 0.229, 1e-5);
  EXPECT_NEAR(first[0].As<float>()[64], (0.2 - 0.456) / 0.224, 1e-5);
  EXPECT_NEAR(first[0].As<float>()[128], (0.2 - 0.406) / 0.225, 1e-5);
}

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
  folder_.Write("train/cat/3.png", Level(13).substr(0, 60));
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

TEST_F(ImageFolderTest, EvaluatesACorruptPictureAsNone) {
  for (int i = 0; i < 10; ++i) {
    folder_.Write(absl::StrCat("val/cat/", i, ".png"),
                  i == 2 ? "broken" : Level(50));
  }
  spec_.train.micro_batch = 22;
  const TensorList last = WalkAll(spec_).back();

  ASSERT_EQ(last[0].shape[0], 10);
  EXPECT_EQ(last[1].As<int64_t>()[2], kNoLabel);
  EXPECT_EQ(last[0].As<float>()[2 * 64], 0);
  EXPECT_EQ(last[1].As<int64_t>()[3], 0);
}

TEST_F(ImageFolderTest, InfersNothingFromACorruptPicture) {
  folder_.Write("train/cat/2.png", "broken");
  spec_.kind = "infer";
  spec_.train.steps = spec_.train.epochs = 0;
  spec_.train.micro_batch = 22;
  spec_.data.path = folder_.Path("train/cat");
  const TensorList all = WalkAll(spec_).back();

  int64_t unreadable = 0;
  for (const float value : all[0].As<float>()) unreadable += std::isnan(value);
  EXPECT_EQ(unreadable, 64) << "one picture, all of it";
  EXPECT_TRUE(std::isnan(all[0].As<float>()[2 * 64]));
}

TEST_F(ImageFolderTest, FailsWhenMoreThanATenthIsCorrupt) {
  for (const char* const name : {"1", "3"}) {
    folder_.Write(absl::StrCat("train/cat/", name, ".png"), "broken");
  }
  EXPECT_TRUE(FirstError().ok()) << "2 of 22 are no tenth";
  folder_.Write("train/cat/5.png", "broken");

  const absl::Status status = FirstError();

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("3 of 22 images"), HasSubstr("train/cat/"),
                    HasSubstr("neither a JPEG nor a PNG"),
                    HasSubstr("the log names those that were met so far")));
}

TEST_F(ImageFolderTest, NamesTheUnreadableByTheirNumbers) {
  folder_.Write("train/cat/2.png", "broken");
  folder_.Write("train/dog/21.PNG", "broken");
  for (int i = 0; i < 4; ++i) {
    folder_.Write(absl::StrCat("val/cat/", i, ".png"),
                  i == 3 ? "broken" : Level(50));
  }
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->Unreadable(BatchPhase::kTrain).numbers, IsEmpty());

  WalkAll(**source);

  const UnreadableSamples train = (*source)->Unreadable(BatchPhase::kTrain);
  EXPECT_EQ(train.of, 22);
  EXPECT_THAT(train.numbers, ElementsAre(2, 21));
  const UnreadableSamples test = (*source)->Unreadable(BatchPhase::kEvaluate);
  EXPECT_EQ(test.of, 4);
  EXPECT_THAT(test.numbers, ElementsAre(3));
}

TEST_F(ImageFolderTest, SkipsAPictureThatVanishedOrLies) {
  CollectLog();
  spec_.train.epochs = 9;
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();
  std::string lying = Level(13);
  lying[16] = 0x7f;  // wider than anything, and a wrong checksum
  folder_.Write("train/cat/3.png", lying);
  std::filesystem::remove(folder_.Path("train/cat/4.png"));

  WalkAll(**source);

  EXPECT_EQ(LoggedWith("image skipped"), 2);
  EXPECT_EQ(LoggedWith("No such file"), 1);
}

// A job that has trained for hours is not lost to two pictures of eight; of two
// pictures not both may be corrupt.
TEST_F(ImageFolderTest, ASmallSplitMayLoseTwo) {
  for (int i = 0; i < 8; ++i) {
    folder_.Write(absl::StrCat("val/cat/", i, ".png"),
                  i < 2 ? "broken" : Level(50));
  }
  EXPECT_TRUE(FirstError().ok()) << FirstError();

  folder_.Write("val/cat/2.png", "broken");
  EXPECT_THAT(std::string(FirstError().message()),
              HasSubstr("3 of 8 images cannot be read"));
  for (int i = 2; i < 8; ++i) {
    std::filesystem::remove(folder_.Path(absl::StrCat("val/cat/", i, ".png")));
  }
  EXPECT_EQ(FirstError().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ImageFolderTest, DoesNotLookAtOtherFiles) {
  folder_.Write("train/cat/notes.txt", "cats");
  folder_.Write("train/cat/.hidden.png", "x");
  folder_.Write("train/.git/x.png", "x");
  folder_.Write("train/README", "x");
  ASSERT_EQ(mkfifo(folder_.Path("train/cat/pipe.png").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", folder_.Path("train/cat/l.png"));

  EXPECT_EQ(Levels().size(), 22u);
}

TEST_F(ImageFolderTest, CountsAllThatIsNotUsed) {
  EXPECT_THAT(OpenBatchSource(spec_).value()->Facts().notes, IsEmpty());
  folder_.Write("train/cat/deeper/0.png", Level(1));
  folder_.Write("train/0.png", Level(1));
  folder_.Write("train/.DS_Store", "x");
  folder_.Write("val/dog/0.png", Level(1));
  folder_.Write("val/dog/1.tiff", "x");
  folder_.Write("test/dog/0.png", Level(1));

  const auto notes = OpenBatchSource(spec_).value()->Facts().notes;

  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("4 files are not used, for example"));
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
  folder_.Write("val/dog/0.png", Level(1));
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

TEST_F(ImageFolderTest, NamesAnEmptyClassOfEitherSplit) {
  folder_.Write("val/dog/0.png", Level(1));
  std::filesystem::create_directory(folder_.Path("val/cat"));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("val/cat"), HasSubstr("empty class")));

  folder_.Write("train/emu/notes.txt", "no pictures yet");
  spec_.data.classes = 3;
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("train/emu"), HasSubstr("an empty class")));
}

TEST_F(ImageFolderTest, SaysHowManyClassesThereAre) {
  spec_.data.classes = 10;

  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("has 2 class folders, from cat to dog"),
                    HasSubstr("data.classes is 10"),
                    HasSubstr("set data.classes to 2")));
}

TEST_F(ImageFolderTest, SaysThatOneClassIsNone) {
  std::filesystem::remove_all(folder_.Path("train/dog"));
  spec_.data.classes = 10;

  EXPECT_THAT(Refusal(), AllOf(HasSubstr("train: has one class folder, cat"),
                               HasSubstr("nothing to tell apart")));
}

TEST_F(ImageFolderTest, NamesAClassThatOnlyTheSecondSplitHas) {
  folder_.Write("val/emu/0.png", Level(1));

  EXPECT_THAT(Refusal(), AllOf(HasSubstr("/val"), HasSubstr("class emu")));
}

TEST_F(ImageFolderTest, TakesATrainForAClassAmongOthers) {
  std::filesystem::rename(folder_.Path("train/dog"), folder_.Path("dog"));
  std::filesystem::rename(folder_.Path("train/cat"), folder_.Path("cat"));
  folder_.Write("train/1.png", Level(240));
  spec_.data.classes = 3;

  const auto levels = Levels();

  ASSERT_EQ(levels.size(), 23u);
  EXPECT_EQ(levels.find(240)->second, 2);
}

}  // namespace
}  // namespace paceline
