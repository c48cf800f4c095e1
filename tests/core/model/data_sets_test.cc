#include "core/data/data_sets.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

TEST(DataSets, HaveAsManySamplesAsTheirFilesAlwaysHave) {
  DataSpec data = DefaultDataSpec("synthetic");
  data.train_samples = 7;
  EXPECT_EQ(TrainSamplesOf(data), 7);
  EXPECT_EQ(TrainSamplesOf(DefaultDataSpec("cifar10")), 50000);
  EXPECT_EQ(TrainSamplesOf(DefaultDataSpec("fashion-mnist")), 60000);
  EXPECT_EQ(TrainSamplesOf(DefaultDataSpec("imagefolder")), 0);
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
