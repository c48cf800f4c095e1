// Pairs of sentences, of files and of none, through the public door:
// OpenBatchSource.
#include <algorithm>
#include <set>

#include "core/model/data_sets.h"
#include "gmock/gmock.h"
#include "tests/worker/data_files.h"
#include "worker/data/open.h"
#include "worker/data/synthetic.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBlock = 5;

class PairsTest : public ::testing::Test {
 protected:
  PairsTest() {
    Take("text-pairs");
    spec_.data.path = folder_.Path("input.txt");
    spec_.data.test_fraction = 0;
    spec_.train.batch = 64;
    spec_.train.micro_batch = 64;
  }

  void Take(const std::string& name) {
    const std::string path = spec_.data.path;
    spec_.data = DefaultDataSpec(name);
    spec_.data.path = path;
    spec_.data.block = kBlock;
    spec_.data.shape = {2 * kBlock};
  }

  // A sample: its tokens and its labels, in a row.
  using Sample = std::vector<int64_t>;

  // Split by split in order of the walk.
  std::vector<std::set<Sample>> Splits() {
    std::vector<std::set<Sample>> splits;
    const auto source = OpenBatchSource(spec_);
    EXPECT_TRUE(source.ok()) << source.status();
    if (!source.ok()) return splits;
    for (const TensorList& tensors : WalkAll(**source)) {
      const int64_t samples = tensors[0].shape[0];
      EXPECT_EQ(tensors[0].shape, (Shape{samples, 2 * kBlock}));
      EXPECT_EQ(tensors[1].shape, (Shape{samples, kBlock}));
      auto& split = splits.emplace_back();
      for (int64_t i = 0; i < samples; ++i) {
        const auto tokens =
            tensors[0].As<int64_t>().subspan(2 * i * kBlock, 2 * kBlock);
        const auto labels =
            tensors[1].As<int64_t>().subspan(i * kBlock, kBlock);
        Sample sample(tokens.begin(), tokens.end());
        sample.insert(sample.end(), labels.begin(), labels.end());
        split.insert(std::move(sample));
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

TEST_F(PairsTest, BeginEndFillUpAndAreCut) {
  folder_.Write("input.txt", "ab\txyz\nabcdefg\tuvwxyz\na\t\nb\ta\tb");

  const auto splits = Splits();

  ASSERT_EQ(splits.size(), 1u);
  const int64_t no = kNoLabel;
  EXPECT_EQ(
      splits[0],
      (std::set<Sample>{
          {'a', 'b', 0, 0, 0, 2, 'x', 'y', 'z', 0, 'x', 'y', 'z', 3, no},
          {'a', 'b', 'c', 'd', 'e', 2, 'u', 'v', 'w', 'x', 'u', 'v', 'w', 'x',
           3},
          {'a', 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, no, no, no, no},
          {'b', 0, 0, 0, 0, 2, 'a', '\t', 'b', 0, 'a', '\t', 'b', 3, no}}));
}

TEST_F(PairsTest, TheLastLinesAreTheTestSplitOrAFileOfTheirOwn) {
  spec_.data.test_fraction = 0.5;
  folder_.Write("input.txt", "a\tb\nc\td\n");
  const auto one_file = Splits();
  ASSERT_EQ(one_file.size(), 2u);
  EXPECT_EQ((*one_file[1].begin())[0], 'c');

  folder_.Write("train.txt", "e\tf\n");
  folder_.Write("val.txt", "g\th\n");
  spec_.data.path = folder_.Path("");
  const auto two_files = Splits();
  ASSERT_EQ(two_files.size(), 2u);
  EXPECT_EQ((*two_files[0].begin())[0], 'e');
  EXPECT_EQ((*two_files[1].begin())[0], 'g');
}

TEST_F(PairsTest, NameTheLineThatIsNoPair) {
  folder_.Write("input.txt", "a\tb\nno tabulator\n");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("input.txt: line 2"),
                               HasSubstr("SOURCE TAB TARGET")));
  folder_.Write("input.txt", "\tb\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 1 has nothing before its tabulator"));
  folder_.Write("input.txt", "a\tb\n\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 2 has no tabulator"));
  folder_.Write("input.txt", "a\tb\x03\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 1 has a byte 3"));
  folder_.Write("input.txt", std::string("a\0\tb\n", 5));
  EXPECT_THAT(Refusal(), HasSubstr("line 1 has a byte 0"));
  folder_.Write("input.txt", "");
  EXPECT_THAT(Refusal(), HasSubstr("has 0 lines for training"));
}

TEST_F(PairsTest, OfAMissingFileAreNotFound) {
  EXPECT_TRUE(absl::IsNotFound(OpenBatchSource(spec_).status()));
}

TEST_F(PairsTest, SyntheticTargetsAreTheirSourcesBackwardsInAnotherAlphabet) {
  Take("synthetic-pairs");
  spec_.data.train_samples = 40;
  spec_.data.test_samples = 9;
  const SyntheticPairs pairs(spec_.data, spec_.train.seed);

  const auto splits = Splits();

  ASSERT_EQ(splits.size(), 2u);
  EXPECT_GT(splits[0].size(), 35u) << "most are different";
  std::set<int64_t> lengths;
  for (const Sample& sample : splits[0]) {
    const auto padding =
        std::find(sample.begin(), sample.begin() + kBlock, kPaddingToken);
    const int64_t length = padding - sample.begin();
    lengths.insert(length);
    EXPECT_EQ(sample[kBlock], kBeginToken);
    for (int64_t j = 0; j < length; ++j) {
      EXPECT_GE(sample[j], kFirstWordToken);
      EXPECT_LT(sample[j], spec_.data.classes);
      const int64_t expected = pairs.Translate(sample[length - 1 - j]);
      EXPECT_EQ(sample[2 * kBlock + j], expected);
      EXPECT_EQ(sample[kBlock + 1 + j], expected);
    }
    EXPECT_EQ(sample[2 * kBlock + length], kEndToken);
  }
  EXPECT_THAT(lengths, ElementsAre(2, 3, 4)) << "half a block to one less";
  EXPECT_EQ(Splits(), splits) << "the same every time";
}

TEST_F(PairsTest, TheAlphabetHasEveryWordOnceAndIsTheSeeds) {
  Take("synthetic-pairs");
  std::set<int64_t> words, others;
  const SyntheticPairs pairs(spec_.data, 1), other(spec_.data, 2);
  int different = 0;
  for (int64_t word = kFirstWordToken; word < spec_.data.classes; ++word) {
    words.insert(pairs.Translate(word));
    different += pairs.Translate(word) != other.Translate(word);
  }

  EXPECT_EQ(words.size(), 28u);
  EXPECT_EQ(*words.begin(), kFirstWordToken);
  EXPECT_GT(different, 0);
}

}  // namespace
}  // namespace paceline
