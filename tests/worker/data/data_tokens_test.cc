// Texts, labelled texts and pairs of sentences, of files and of none, through
// OpenBatchSource.
#include <algorithm>
#include <set>

#include "core/data/data_sets.h"
#include "tests/support/golden.h"
#include "tests/worker/data/data_script.h"
#include "worker/data/synthetic.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

std::string Play(const std::string& script) {
  return DataScript().Play(script);
}

TEST(Texts, AreReadAsTheyLie) { ExpectAnswers("worker/texts", Play); }

// A sample: its tokens and its labels, in a row.
using TokenSample = std::vector<int64_t>;
using Samples = std::set<TokenSample>;

class TokensTest : public DataTest {
 protected:
  TokensTest() {
    Take("text", 4);
    spec_.data.test_fraction = 0;
    spec_.train.batch = 64;
    spec_.train.micro_batch = 64;
  }

  void Take(const std::string& name, int block) {
    spec_.data = DefaultDataSpec(name);
    spec_.data.path = folder_.Path("input.txt");
    SetBlock(block);
  }
  void SetBlock(int block) {
    const bool pairs = spec_.data.name.ends_with("-pairs");
    spec_.data.block = block;
    spec_.data.shape = {pairs ? 2 * block : block};
  }

  // Split by split in order of the walk.
  std::vector<Samples> Splits() {
    std::vector<Samples> splits;
    for (const TensorList& tensors : WalkAll(spec_)) {
      Samples& split = splits.emplace_back();
      const int64_t samples = tensors[0].shape[0];
      EXPECT_EQ(tensors[1].shape[0], samples);
      for (int64_t i = 0; i < samples; ++i) {
        TokenSample sample;
        for (const Tensor& tensor : tensors) {
          EXPECT_EQ(tensor.dtype, DType::kI64);
          const auto values = tensor.As<int64_t>();
          const size_t width = values.size() / samples;
          const auto row = values.subspan(i * width, width);
          sample.insert(sample.end(), row.begin(), row.end());
        }
        split.insert(std::move(sample));
      }
    }
    return splits;
  }
};

TEST_F(TokensTest, ShufflesBlocksAnewEveryEpoch) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  folder_.Write("input.txt", text);
  spec_.train.epochs = 2;
  const auto all = WalkAll(spec_);

  EXPECT_NE(BytesOf({all[0]}), BytesOf({all[1]}));
  spec_.data.workers = 5;
  EXPECT_TRUE(BytesOf(WalkAll(spec_)) == BytesOf(all));
}

TEST_F(TokensTest, ReadsCharactersThatTwoPiecesOfTheFileShare) {
  // Three bytes each: a piece of 2^20 bytes ends inside of one.
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "\xe2\x82\xac";
  folder_.Write("input.txt", text);
  spec_.data.tokens = "character";
  SetBlock(399'999);

  EXPECT_EQ(Splits()[0].size(), 1u);
}

TEST_F(TokensTest, ReadsTokensOfTwoBytesInSeveralReads) {
  spec_.data.tokens = "uint16";
  spec_.data.classes = 65536;
  SetBlock(10'000);
  std::vector<int> tokens;
  std::string bytes;
  for (int i = 0; i < 10'001; ++i) {
    tokens.push_back(i * 5 % 65536);
    bytes += static_cast<char>(tokens.back());
    bytes += static_cast<char>(tokens.back() >> 8);
  }
  folder_.Write("input.txt", bytes);
  TokenSample expected(tokens.begin(), tokens.end() - 1);
  expected.insert(expected.end(), tokens.begin() + 1, tokens.end());

  EXPECT_EQ(Splits(), std::vector<Samples>{{expected}});
}

TEST_F(TokensTest, KnowsAFileByItsBytes) {
  const auto contents = [this](const std::string& text) {
    folder_.Write("input.txt", text);
    return OpenBatchSource(spec_).value()->Facts().contents;
  };
  // Between the samples that a fingerprint looks at.
  std::string text(100'000, 'a');
  const uint64_t before = contents(text);
  text[777] = 'b';

  EXPECT_NE(contents(text), before);
  EXPECT_NE(before, 0u);
}

// Only some parts of a large text were hashed.
TEST_F(TokensTest, KnowsEachLineOfALargeFile) {
  Take("text-labels", 6);
  spec_.data.test_fraction = 0;
  constexpr size_t kLine = 1 << 20;
  constexpr int kLines = 66;
  std::string text;
  for (int i = 0; i < kLines; ++i) {
    text += "0\t" + std::string(kLine - 3, 'a') + "\n";
  }
  const auto contents = [&] {
    folder_.Write("input.txt", text);
    return OpenBatchSource(spec_).value()->Facts().contents;
  };
  const uint64_t before = contents();

  for (const size_t line : {31, 32}) {
    text[line * kLine] = '1';
    EXPECT_NE(contents(), before) << line;
    text[line * kLine] = '0';
  }
}

constexpr int64_t kPairBlock = 5;

TEST_F(TokensTest, SyntheticTargetsAreTheirSourcesBackwardsInAnotherAlphabet) {
  Take("synthetic-pairs", kPairBlock);
  spec_.data.train_samples = 40;
  spec_.data.test_samples = 9;
  const SyntheticSet pairs(spec_.data, spec_.train.seed);

  const auto splits = Splits();

  ASSERT_EQ(splits.size(), 2u);
  EXPECT_GT(splits[0].size(), 35u) << "most are different";
  std::set<int64_t> lengths;
  for (const TokenSample& sample : splits[0]) {
    const auto padding =
        std::find(sample.begin(), sample.begin() + kPairBlock, kPaddingToken);
    const int64_t length = padding - sample.begin();
    lengths.insert(length);
    EXPECT_EQ(sample[kPairBlock], kBeginToken);
    for (int64_t j = 0; j < length; ++j) {
      EXPECT_GE(sample[j], kFirstWordToken);
      EXPECT_LT(sample[j], spec_.data.classes);
      const int64_t expected = pairs.Translate(sample[length - 1 - j]);
      EXPECT_EQ(sample[2 * kPairBlock + j], expected);
      EXPECT_EQ(sample[kPairBlock + 1 + j], expected);
    }
    EXPECT_EQ(sample[2 * kPairBlock + length], kEndToken);
  }
  EXPECT_THAT(lengths, ElementsAre(2, 3, 4)) << "half a block to one less";
  EXPECT_EQ(Splits(), splits) << "the same every time";
}

TEST_F(TokensTest, TheAlphabetHasEveryWordOnceAndIsTheSeeds) {
  Take("synthetic-pairs", kPairBlock);
  std::set<int64_t> words;
  const SyntheticSet pairs(spec_.data, 1), other(spec_.data, 2);
  int different = 0;
  for (int64_t word = kFirstWordToken; word < spec_.data.classes; ++word) {
    words.insert(pairs.Translate(word));
    different += pairs.Translate(word) != other.Translate(word);
  }

  EXPECT_EQ(words.size(), 28u);
  EXPECT_EQ(*words.begin(), kFirstWordToken);
  EXPECT_GT(different, 0);
}

TEST_F(TokensTest, SyntheticLabelsAreTheSameEveryTimeInRangeAndFilledUp) {
  Take("synthetic-labels", 10);
  spec_.data.classes = 3;
  spec_.data.vocabulary = 7;
  spec_.data.padding = 1;
  spec_.data.train_samples = 50;
  spec_.data.test_samples = 0;

  const auto splits = Splits();

  EXPECT_EQ(Splits(), splits);
  std::set<int64_t> labels, tokens;
  int64_t filled = 0;
  for (const TokenSample& sample : splits.at(0)) {
    labels.insert(sample.back());
    const auto last = sample.end() - 1;
    tokens.insert(sample.begin(), last);
    const auto end = std::find(sample.begin(), last, 1);
    EXPECT_GE(end - sample.begin(), 5);
    EXPECT_EQ(std::count(end, last, 1), last - end);
    filled += last - end;
  }
  EXPECT_EQ(labels, (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(tokens, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_GT(filled, 0);
}

TEST_F(TokensTest, SyntheticTokensHaveSuccessorsThatMostlyFollow) {
  Take("synthetic-tokens", 50);
  spec_.data.classes = 1000;
  spec_.data.train_samples = 80;
  spec_.data.test_samples = 0;
  const SyntheticSet set(spec_.data, spec_.train.seed);
  int followed = 0, count = 0;
  for (const Samples& samples : Splits()) {
    for (const TokenSample& sample : samples) {
      for (int j = 0; j < 50; ++j, ++count) {
        ASSERT_TRUE(sample[j] >= 0 && sample[j] < 1000);
        followed += sample[50 + j] == set.SuccessorOf(sample[j]);
        EXPECT_TRUE(j == 49 || sample[50 + j] == sample[j + 1]);
      }
    }
  }
  EXPECT_EQ(count, 4000);
  EXPECT_NEAR(followed, 3000, 150);
}

TEST(SyntheticTokens, AreDrawnFromSeedSplitAndNumber) {
  DataSpec data = DefaultDataSpec("synthetic-tokens");
  const auto draw = [&data](int64_t seed, BatchPhase split, int32_t index) {
    const SyntheticSet set(data, seed);
    Tensor input = Tensor::Allocate(DType::kI64, {1, data.block});
    Tensor label = Tensor::Allocate(DType::kI64, {1, data.block});
    EXPECT_TRUE(set.Load({split, 0, {index}}, input, label).ok());
    return BytesOf({{input, label}});
  };
  const std::string drawn = draw(7, BatchPhase::kTrain, 3);

  EXPECT_EQ(draw(7, BatchPhase::kTrain, 3), drawn);
  EXPECT_NE(draw(8, BatchPhase::kTrain, 3), drawn);
  EXPECT_NE(draw(7, BatchPhase::kEvaluate, 3), drawn);
  EXPECT_NE(draw(7, BatchPhase::kTrain, 4), drawn);
}

}  // namespace
}  // namespace paceline
