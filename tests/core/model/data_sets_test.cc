#include "core/model/data_sets.h"

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

// A change that makes a data set's defaults bad, and what is then said.
struct BadData {
  const char* name;
  const char* path;
  const char* why;  // part of it
  void (*spoil)(DataSpec&);
};

const BadData kBadData[] = {
    {"cifar10", "data.path", "needs the place",
     [](DataSpec& d) { d.path = ""; }},
    {"imagefolder", "data.path", "needs the place",
     [](DataSpec& d) { d.path = ""; }},
    {"text", "data.path", "needs the place", [](DataSpec& d) { d.path = ""; }},
    {"text-labels", "data.padding", "from 0 to 255, got 256",
     [](DataSpec& d) { d.padding = 256; }},
    {"text-labels", "data.test_fraction", "in [0, 1]",
     [](DataSpec& d) { d.test_fraction = 1.5; }},
    {"synthetic-labels", "data.padding", "from 0 to 9, got 10",
     [](DataSpec& d) {
       d.vocabulary = 10;
       d.padding = 10;
     }},
    {"synthetic-labels", "data.vocabulary", "got 1",
     [](DataSpec& d) { d.vocabulary = 1; }},
    {"synthetic-labels", "data.shape", "set data.block",
     [](DataSpec& d) { d.shape = {3}; }},
    {"cifar10", "data.shape", "3,32,32, got 3,224,224; leave it out",
     [](DataSpec& d) {
       d.shape = {3, 224, 224};
     }},
    {"cifar100", "data.classes", "has 100 classes, got 10",
     [](DataSpec& d) { d.classes = 10; }},
    {"cifar10", "data.crop", "choose one of: center, random",
     [](DataSpec& d) { d.crop = "random-resized"; }},
    {"imagefolder", "data.crop", "did you mean 'center'?",
     [](DataSpec& d) { d.crop = "centre"; }},
    {"imagefolder", "data.flip", "in [0, 1], got 1.5",
     [](DataSpec& d) { d.flip = 1.5; }},
    {"imagefolder", "data.shape", "1 (grey) or 3 (colours) channels, got 4,8,8",
     [](DataSpec& d) {
       d.shape = {4, 8, 8};
     }},
    {"imagefolder", "data.shape", "channels,height,width",
     [](DataSpec& d) {
       d.shape = {224, 224};
     }},
    {"imagefolder", "data.classes", "got 1",
     [](DataSpec& d) { d.classes = 1; }},
    {"imagefolder", "data.resize", "from 224, the longer side",
     [](DataSpec& d) { d.resize = 200; }},
    {"imagefolder", "data.resize", "to 16384",
     [](DataSpec& d) { d.resize = 20000; }},
    {"imagefolder", "data.mean", "has 2 numbers",
     [](DataSpec& d) {
       d.mean = {0.5, 0.5};
     }},
    {"imagefolder", "data.deviation", "greater than 0, got 0",
     [](DataSpec& d) {
       d.deviation = {0.2, 0, 0.2};
     }},
    {"idx", "data.mean", "has 3 numbers; give one",
     [](DataSpec& d) {
       d.mean = {0.5, 0.5, 0.5};
     }},
    {"text", "data.block", "from 1 to", [](DataSpec& d) { d.block = 0; }},
    {"text", "data.shape", "set data.block",
     [](DataSpec& d) {
       d.shape = {3, 8, 8};
     }},
    {"text", "data.tokens", "choose one of: byte, character, uint16",
     [](DataSpec& d) { d.tokens = "words"; }},
    {"text", "data.classes", "at least 256",
     [](DataSpec& d) { d.classes = 65; }},
    {"text", "data.test_fraction", "in [0, 1], got 2",
     [](DataSpec& d) { d.test_fraction = 2; }},
    {"text-pairs", "data.path", "needs the place",
     [](DataSpec& d) { d.path = ""; }},
    {"text-pairs", "data.classes", "at least 256",
     [](DataSpec& d) { d.classes = 100; }},
    {"text-pairs", "data.test_fraction", "in [0, 1]",
     [](DataSpec& d) { d.test_fraction = -1; }},
    {"synthetic-pairs", "data.shape", "shape [2 x block], which is 32, got 16",
     [](DataSpec& d) { d.shape = {16}; }},
    {"synthetic-pairs", "data.block", "got 1",
     [](DataSpec& d) {
       d.block = 1;
       d.shape = {2};
     }},
    {"synthetic-pairs", "data.classes", "from 5 to",
     [](DataSpec& d) { d.classes = 4; }},
    {"synthetic-pairs", "data.test_samples", "got -1",
     [](DataSpec& d) { d.test_samples = -1; }},
    {"synthetic-tokens", "data.train_samples", "got 0",
     [](DataSpec& d) { d.train_samples = 0; }},
    {"synthetic-tokens", "data.classes", "got 1",
     [](DataSpec& d) { d.classes = 1; }},
};

TEST(DataSets, NameEveryBadValueAlone) {
  for (const BadData& bad : kBadData) {
    DataSpec data = DefaultDataSpec(bad.name);
    data.path = "/somewhere";
    bad.spoil(data);
    SpecProblems problems;

    CheckDataSpec(data, problems);

    const std::vector<SpecProblem> found = problems.Take();
    ASSERT_EQ(found.size(), 1u) << bad.name << " " << bad.why;
    EXPECT_EQ(found[0].path, bad.path) << bad.why;
    EXPECT_THAT(found[0].why, HasSubstr(bad.why)) << bad.name;
  }
}

TEST(DataSets, NameTheOneThatWasMeant) {
  SpecProblems problems;

  EXPECT_FALSE(CheckDataSpec(DefaultDataSpec("cifar-10"), problems));

  EXPECT_THAT(problems.Take().at(0).why, HasSubstr("did you mean 'cifar10'?"));
}

}  // namespace
}  // namespace paceline
