// Labelled tokens, of files and of none, through the public door:
// OpenBatchSource.
#include <algorithm>
#include <map>
#include <set>

#include "core/model/data_sets.h"
#include "gmock/gmock.h"
#include "tests/worker/data_files.h"
#include "worker/data/open.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TextLabelsTest : public ::testing::Test {
 protected:
  TextLabelsTest() {
    spec_.data = DefaultDataSpec("text-labels");
    spec_.data.path = folder_.Path("input.txt");
    spec_.data.test_fraction = 0;
    spec_.data.block = 6;
    spec_.data.shape = {6};
    spec_.data.classes = 12;
    spec_.train.batch = 64;
    spec_.train.micro_batch = 64;
  }

  // Labels by their samples, split by split in order of the walk.
  std::vector<std::map<std::vector<int64_t>, int64_t>> Splits() {
    std::vector<std::map<std::vector<int64_t>, int64_t>> splits;
    const auto source = OpenBatchSource(spec_);
    EXPECT_TRUE(source.ok()) << source.status();
    if (!source.ok()) return splits;
    for (const TensorList& tensors : WalkAll(**source)) {
      EXPECT_EQ(tensors[0].dtype, DType::kI64);
      EXPECT_EQ(tensors[1].shape, Shape{tensors[0].shape[0]});
      auto& split = splits.emplace_back();
      for (int64_t i = 0; i < tensors[0].shape[0]; ++i) {
        const auto tokens = tensors[0].As<int64_t>().subspan(i * 6, 6);
        split[{tokens.begin(), tokens.end()}] = tensors[1].As<int64_t>()[i];
      }
    }
    return splits;
  }

  std::string Refusal() {
    const absl::Status status = OpenBatchSource(spec_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  TempFolder folder_;
  JobSpec spec_;
};

TEST_F(TextLabelsTest, BeginsCutsAndFillsUp) {
  spec_.data.padding = 1;
  folder_.Write("input.txt", "0\tab\n11\tabcdefgh\n3\t\n3\ta\tb");

  const auto splits = Splits();

  ASSERT_EQ(splits.size(), 1u);
  const std::map<std::vector<int64_t>, int64_t> expected = {
      {{2, 'a', 'b', 1, 1, 1}, 0},
      {{2, 'a', 'b', 'c', 'd', 'e'}, 11},
      {{2, 1, 1, 1, 1, 1}, 3},
      {{2, 'a', '\t', 'b', 1, 1}, 3}};
  EXPECT_EQ(splits[0], expected);
}

TEST_F(TextLabelsTest, TheLastLinesAreTheTestSplitOrAFileOfTheirOwn) {
  spec_.data.test_fraction = 0.5;
  folder_.Write("input.txt", "0\ta\n1\tb\n2\tc\n3\td\n");
  auto splits = Splits();
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].size(), 2u);
  EXPECT_EQ(splits[1].at({2, 'd', 0, 0, 0, 0}), 3);

  folder_.Write("two/train.txt", "0\ta\n1\tb\n2\tc\n");
  folder_.Write("two/val.txt", "4\te\n");
  spec_.data.path = folder_.Path("two");
  splits = Splits();
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].size(), 3u);
  EXPECT_EQ(splits[1].at({2, 'e', 0, 0, 0, 0}), 4);
}

// Nobody trains on them: they may have no label.
TEST_F(TextLabelsTest, AllLinesMayBeForInference) {
  folder_.Write("input.txt", "0\ta\n-100\tb\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 2 has label -100, none, from which "
                                   "nothing can be learnt"));

  spec_.data.test_fraction = 1;
  const auto splits = Splits();

  ASSERT_EQ(splits.size(), 2u);
  const std::map<std::vector<int64_t>, int64_t> expected = {
      {{2, 'a', 0, 0, 0, 0}, 0}, {{2, 'b', 0, 0, 0, 0}, kNoLabel}};
  EXPECT_EQ(splits[1], expected);
  for (const char* label : {"-1", "--100", "-", "1-00"}) {
    folder_.Write("input.txt", absl::StrCat(label, "\ta\n"));
    EXPECT_THAT(Refusal(), HasSubstr("line 1 does not begin with a label"))
        << label;
  }
}

TEST_F(TextLabelsTest, NamesTheLineThatIsWrong) {
  const std::pair<const char*, const char*> kBad[] = {
      {"0\ta\nhello\n", "line 2 does not begin with a label"},
      {"0\ta\n-1\tb\n", "line 2 does not begin with a label"},
      {"\ta\n", "line 1 does not begin with a label"},
      {"12\ta\n", "line 1 has label 12, the job's data.classes is 12"},
      {"99999999999\ta\n", "line 1 does not begin with a label"},
      {"0\ta\n1\n", "line 2 has no tabulator"},
      {"0\ta\n\n1\tb\n", "line 2 has no tabulator"},
      {"0\ta\n1", "line 2 has no tabulator"},
  };
  for (const auto& [text, why] : kBad) {
    folder_.Write("input.txt", text);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("input.txt"), HasSubstr(why)))
        << text;
  }
  folder_.Write("input.txt", std::string("0\ta\n1\tb\0c\n", 10));
  EXPECT_THAT(Refusal(), HasSubstr("line 2 has a byte 0 in its text"));
}

TEST_F(TextLabelsTest, RefusesSplitsWithoutLines) {
  folder_.Write("input.txt", "");
  EXPECT_THAT(Refusal(), HasSubstr("has 0 lines for training"));

  spec_.data.test_fraction = 0.1;
  folder_.Write("input.txt", "0\ta\n1\tb\n");
  EXPECT_THAT(Refusal(), HasSubstr("0 for evaluation"));
}

TEST(SyntheticLabels, AreTheSameEveryTimeInRangeAndFilledUp) {
  JobSpec spec;
  spec.data = DefaultDataSpec("synthetic-labels");
  spec.data.block = 10;
  spec.data.shape = {10};
  spec.data.classes = 3;
  spec.data.vocabulary = 7;
  spec.data.padding = 1;
  spec.data.train_samples = 50;
  spec.data.test_samples = 0;
  const auto walk = [&] {
    const auto source = OpenBatchSource(spec);
    EXPECT_TRUE(source.ok()) << source.status();
    return WalkAll(**source);
  };

  const auto all = walk();

  EXPECT_EQ(BytesOf(all), BytesOf(walk()));
  std::set<int64_t> labels, tokens;
  int64_t filled = 0;
  for (const TensorList& tensors : all) {
    for (const int64_t label : tensors[1].As<int64_t>()) labels.insert(label);
    for (int64_t i = 0; i < tensors[1].shape[0]; ++i) {
      const auto sample = tensors[0].As<int64_t>().subspan(i * 10, 10);
      tokens.insert(sample.begin(), sample.end());
      const auto end = std::find(sample.begin(), sample.end(), 1);
      EXPECT_GE(end - sample.begin(), 5);
      EXPECT_EQ(std::count(end, sample.end(), 1), sample.end() - end);
      filled += sample.end() - end;
    }
  }
  EXPECT_EQ(labels, (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(tokens, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_GT(filled, 0);
}

}  // namespace
}  // namespace paceline
