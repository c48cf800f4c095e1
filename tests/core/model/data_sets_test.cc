#include "core/data/data_sets.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

TEST(DataSets, AreSortedAndFoundByName) {
  const std::vector<std::string> names = DataSetNames();

  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) {
    ASSERT_NE(FindDataSet(name), nullptr);
    EXPECT_EQ(FindDataSet(name)->name, name);
  }
  EXPECT_EQ(FindDataSet("imagenet"), nullptr);
}

TEST(DataSets, HaveGoodDefaultsButForTheirPaths) {
  for (const std::string& name : DataSetNames()) {
    DataSpec data = DefaultDataSpec(name);
    data.path = "/somewhere";
    SpecProblems problems;

    EXPECT_TRUE(CheckDataSpec(data, problems)) << name;
    EXPECT_TRUE(problems.Take().empty()) << name;
  }
}

TEST(DataSets, SayWhatASampleIs) {
  EXPECT_EQ(FormatOf(DefaultDataSpec("cifar10")),
            (SampleFormat{DType::kF32, {3, 32, 32}, {}}));
  EXPECT_EQ(VocabularyOf(DefaultDataSpec("cifar10")), 0);

  DataSpec text = DefaultDataSpec("text");
  text.block = 64;
  EXPECT_EQ(FormatOf(text), (SampleFormat{DType::kI64, {64}, {64}}));
  EXPECT_EQ(VocabularyOf(text), 256);

  DataSpec labelled = DefaultDataSpec("synthetic-labels");
  labelled.vocabulary = 30;
  EXPECT_EQ(FormatOf(labelled), (SampleFormat{DType::kI64, {128}, {}}));
  EXPECT_EQ(VocabularyOf(labelled), 30);
  EXPECT_EQ(VocabularyOf(DefaultDataSpec("text-labels")), 256);

  DataSpec pairs = DefaultDataSpec("synthetic-pairs");
  EXPECT_EQ(pairs.shape, Shape{32});
  pairs.block = 10;
  EXPECT_EQ(FormatOf(pairs), (SampleFormat{DType::kI64, {20}, {10}}));
  EXPECT_EQ(VocabularyOf(pairs), 32);
  EXPECT_EQ(VocabularyOf(DefaultDataSpec("text-pairs")), 256);
}

// Changes that make a data set's defaults bad.
const std::pair<const char*, BadJob> kBadData[] = {
    {"cifar10", {"data.path=", "needs the place"}},
    {"imagefolder", {"data.path=", "needs the place"}},
    {"text", {"data.path=", "needs the place"}},
    {"text-labels", {"data.padding=256", "from 0 to 255, got 256"}},
    {"text-labels", {"data.test_fraction=1.5", "in [0, 1]"}},
    {"synthetic-labels",
     {"data.vocabulary=10; data.padding=10", "from 0 to 9, got 10"}},
    {"synthetic-labels", {"data.vocabulary=1", "got 1"}},
    {"synthetic-labels", {"data.shape=3", "set data.block"}},
    {"cifar10",
     {"data.shape=3,224,224", "3,32,32, got 3,224,224; leave it out"}},
    {"cifar100", {"data.classes=10", "has 100 classes, got 10"}},
    {"cifar10", {"data.crop=random-resized", "choose one of: center, random"}},
    {"imagefolder", {"data.crop=centre", "did you mean 'center'?"}},
    {"imagefolder", {"data.flip=1.5", "in [0, 1], got 1.5"}},
    {"imagefolder",
     {"data.shape=4,8,8", "1 (grey) or 3 (colours) channels, got 4,8,8"}},
    {"imagefolder", {"data.shape=224,224", "channels,height,width"}},
    {"imagefolder", {"data.classes=1", "got 1"}},
    {"imagefolder", {"data.resize=200", "from 224, the longer side"}},
    {"imagefolder", {"data.resize=20000", "to 16384"}},
    {"imagefolder", {"data.mean=0.5,0.5", "has 2 numbers"}},
    {"imagefolder", {"data.deviation=0.2,0,0.2", "greater than 0, got 0"}},
    {"idx", {"data.mean=0.5,0.5,0.5", "has 3 numbers; give one"}},
    {"text", {"data.block=0", "from 1 to"}},
    {"text", {"data.shape=3,8,8", "set data.block"}},
    {"text", {"data.tokens=words", "choose one of: byte, character, uint16"}},
    {"text", {"data.classes=65", "at least 256"}},
    {"text", {"data.test_fraction=2", "in [0, 1], got 2"}},
    {"text-pairs", {"data.path=", "needs the place"}},
    {"text-pairs", {"data.classes=100", "at least 256"}},
    {"text-pairs", {"data.test_fraction=-1", "in [0, 1]"}},
    {"synthetic-pairs",
     {"data.shape=16", "shape [2 x block], which is 32, got 16"}},
    {"synthetic-pairs", {"data.shape=2; data.block=1", "got 1"}},
    {"synthetic-pairs", {"data.classes=4", "from 5 to"}},
    {"synthetic-pairs", {"data.test_samples=-1", "got -1"}},
    {"synthetic-tokens", {"data.train_samples=0", "got 0"}},
    {"synthetic-tokens", {"data.classes=1", "got 1"}},
};

TEST(DataSets, HaveAsManySamplesAsTheirFilesAlwaysHave) {
  DataSpec data = DefaultDataSpec("synthetic");
  data.train_samples = 7;
  EXPECT_EQ(TrainSamplesOf(data), 7);
  EXPECT_EQ(TrainSamplesOf(DefaultDataSpec("cifar10")), 50000);
  EXPECT_EQ(TrainSamplesOf(DefaultDataSpec("fashion-mnist")), 60000);
  EXPECT_EQ(TrainSamplesOf(DefaultDataSpec("imagefolder")), 0);
}

TEST(DataSets, NameEveryBadValueAlone) {
  for (const auto& [name, bad] : kBadData) {
    JobSpec spec;
    spec.data = DefaultDataSpec(name);
    spec.data.path = "/somewhere";
    ChangeJob(spec, bad.changes);

    SpecProblems problems;
    CheckDataSpec(spec.data, problems);

    const std::vector<SpecProblem> found = problems.Take();
    ASSERT_EQ(found.size(), 1u) << name << " " << bad.changes;
    EXPECT_EQ(found[0].path, bad.Path()) << bad.changes;
    EXPECT_THAT(found[0].why, HasSubstr(bad.why)) << name;
  }
}

TEST(DataSets, NameTheOneThatWasMeant) {
  SpecProblems problems;

  EXPECT_FALSE(CheckDataSpec(DefaultDataSpec("cifar-10"), problems));

  EXPECT_THAT(problems.Take().at(0).why, HasSubstr("did you mean 'cifar10'?"));
}

TEST(MostUnreadable, IsATenthOrTwoButNeverAll) {
  const std::map<int64_t, int64_t> most = {
      {0, 0},  {1, 0},  {2, 1},  {3, 2},         {29, 2},
      {30, 3}, {60, 6}, {69, 6}, {40'960, 4096}, {1'200'000, 4096}};
  for (const auto& [samples, expected] : most) {
    EXPECT_EQ(MostUnreadable(samples), expected) << samples;
  }
}

}  // namespace
}  // namespace paceline
