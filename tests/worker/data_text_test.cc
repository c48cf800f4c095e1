// Texts, good and bad, through the public door: OpenBatchSource.
#include <map>

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

std::string Little16(const std::vector<int>& tokens) {
  std::string bytes;
  for (const int token : tokens) {
    bytes += static_cast<char>(token);
    bytes += static_cast<char>(token >> 8);
  }
  return bytes;
}

class TextTest : public ::testing::Test {
 protected:
  TextTest() {
    spec_.data = DefaultDataSpec("text");
    spec_.data.path = folder_.Path("input.txt");
    spec_.data.test_fraction = 0;
    SetBlock(4);
    spec_.train.batch = 64;
    spec_.train.micro_batch = 64;
  }

  void SetBlock(int block) {
    spec_.data.block = block;
    spec_.data.shape = {block};
  }

  // Blocks and what follows each of their tokens, by the block's tokens.
  std::map<std::vector<int64_t>, std::vector<int64_t>> Blocks() {
    std::map<std::vector<int64_t>, std::vector<int64_t>> blocks;
    const auto source = OpenBatchSource(spec_);
    EXPECT_TRUE(source.ok()) << source.status();
    if (!source.ok()) return blocks;
    for (const TensorList& tensors : WalkAll(**source)) {
      EXPECT_EQ(tensors[0].dtype, DType::kI64);
      EXPECT_EQ(tensors[1].dtype, DType::kI64);
      EXPECT_EQ(tensors[0].shape, tensors[1].shape);
      const int64_t block = spec_.data.block;
      for (int64_t i = 0; i < tensors[0].shape[0]; ++i) {
        const auto input = tensors[0].As<int64_t>().subspan(i * block, block);
        const auto label = tensors[1].As<int64_t>().subspan(i * block, block);
        blocks[{input.begin(), input.end()}] = {label.begin(), label.end()};
      }
    }
    return blocks;
  }

  std::string Refusal() {
    const absl::Status status = OpenBatchSource(spec_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  TempFolder folder_;
  JobSpec spec_;
};

TEST_F(TextTest, CutsBytesIntoBlocksAndSaysWhatFollows) {
  folder_.Write("input.txt", "abcdefghijk\xff");

  const auto blocks = Blocks();

  ASSERT_EQ(blocks.size(), 2u) << "the rest is less than a block and one";
  EXPECT_THAT(blocks.begin()->first, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(blocks.begin()->second, ElementsAre('b', 'c', 'd', 'e'));
  EXPECT_THAT(blocks.rbegin()->second, ElementsAre('f', 'g', 'h', 'i'));
}

TEST_F(TextTest, TakesAFileOfJustOneBlock) {
  folder_.Write("input.txt", "abcde");

  EXPECT_EQ(Blocks().size(), 1u);
}

TEST_F(TextTest, SaysThatABlockIsLongerThanTheFile) {
  folder_.Write("input.txt", "abcd");
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("training split has 4 tokens"),
                    HasSubstr("needs 5"), HasSubstr("lower data.block")));
  folder_.Write("input.txt", "");
  EXPECT_THAT(Refusal(), HasSubstr("has 0 tokens"));
}

TEST_F(TextTest, SaysThatABlockIsLongerThanTheTestSplit) {
  folder_.Write("input.txt", std::string(49, 'x'));
  spec_.data.test_fraction = 0.1;

  EXPECT_THAT(Refusal(), AllOf(HasSubstr("test split has 4 tokens"),
                               HasSubstr("data.test_fraction")));
}

TEST_F(TextTest, EvaluatesOnTheEndOfTheFile) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i);
  folder_.Write("input.txt", text);
  spec_.data.test_fraction = 0.25;
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();

  const auto all = WalkAll(**source);

  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0][0].shape, ElementsAre(18, 4)) << "of 75 tokens";
  EXPECT_THAT(all[1][0].shape, ElementsAre(6, 4)) << "of 25 tokens";
  EXPECT_EQ(all[1][0].As<int64_t>()[0], 75);
  EXPECT_EQ(all[1][1].As<int64_t>().back(), 99);
  for (const int64_t token : all[0][1].As<int64_t>()) EXPECT_LT(token, 75);
}

TEST_F(TextTest, MayTakeAllOfTheFileForInference) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i);
  folder_.Write("input.txt", text);
  spec_.data.test_fraction = 1;
  const auto source = OpenBatchSource(spec_);
  ASSERT_TRUE(source.ok()) << source.status();

  const auto all = WalkAll(**source);

  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[1][0].shape, ElementsAre(24, 4)) << "of 100 tokens";
  EXPECT_EQ(all[1][0].As<int64_t>()[0], 0);
}

TEST_F(TextTest, ShufflesBlocksAnewEveryEpoch) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  folder_.Write("input.txt", text);
  spec_.train.epochs = 2;
  const auto all = WalkAll(**OpenBatchSource(spec_));

  EXPECT_NE(BytesOf({all[0]}), BytesOf({all[1]}));
  spec_.data.workers = 5;
  EXPECT_TRUE(BytesOf(WalkAll(**OpenBatchSource(spec_))) == BytesOf(all));
}

TEST_F(TextTest, NumbersCharactersByTheirRank) {
  folder_.Write("input.txt",
                "c\xc3\xa4"
                "a\xf0\x9f\x9a\xb2"
                "a");  // cäa🚲a
  spec_.data.tokens = "character";
  spec_.data.classes = 4;

  const auto blocks = Blocks();

  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_THAT(blocks.begin()->first, ElementsAre(1, 2, 0, 3));
  EXPECT_THAT(blocks.begin()->second, ElementsAre(2, 0, 3, 0));
}

TEST_F(TextTest, ReadsCharactersThatTwoPiecesOfTheFileShare) {
  // Three bytes each: a piece of 2^20 bytes ends inside of one.
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "\xe2\x82\xac";
  folder_.Write("input.txt", text);
  spec_.data.tokens = "character";
  SetBlock(399'999);

  EXPECT_EQ(Blocks().size(), 1u);
}

TEST_F(TextTest, SaysWhereATextIsNotUtf8) {
  spec_.data.tokens = "character";
  for (const std::string bad :
       {"abc\xff", "abc\x80", "abc\xc3", "abc\xc3(", "abc\xc0\x80",
        "abc\xed\xa0\x80", "abc\xf4\x90\x80\x80", "abc\xe2\x82"}) {
    folder_.Write("input.txt", bad);
    EXPECT_THAT(Refusal(), HasSubstr("is not UTF-8 at byte "));
  }
  folder_.Write("input.txt", "abc\xff");
  EXPECT_THAT(Refusal(), HasSubstr("at byte 3; "));
}

TEST_F(TextTest, SaysHowManyCharactersThereAre) {
  folder_.Write("input.txt", "abcdefghij");
  spec_.data.tokens = "character";
  spec_.data.classes = 9;

  EXPECT_THAT(Refusal(), AllOf(HasSubstr("10 different characters"),
                               HasSubstr("data.classes is 9")));
}

TEST_F(TextTest, ReadsTokensOfTwoBytes) {
  spec_.data.path = folder_.Path("input.bin");
  spec_.data.tokens = "uint16";
  spec_.data.classes = 50257;
  folder_.Write("input.bin", Little16({1, 256, 50256, 7, 8}));

  const auto blocks = Blocks();

  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_THAT(blocks.begin()->first, ElementsAre(1, 256, 50256, 7));
  EXPECT_THAT(blocks.begin()->second, ElementsAre(256, 50256, 7, 8));
}

TEST_F(TextTest, ReadsBlocksThatTakeSeveralReads) {
  spec_.data.path = folder_.Path("input.bin");
  spec_.data.tokens = "uint16";
  spec_.data.classes = 65536;
  SetBlock(10'000);
  std::vector<int> tokens;
  for (int i = 0; i < 10'001; ++i) tokens.push_back(i * 5 % 65536);
  folder_.Write("input.bin", Little16(tokens));

  const auto blocks = Blocks();

  EXPECT_EQ(blocks.begin()->first,
            std::vector<int64_t>(tokens.begin(), tokens.end() - 1));
  EXPECT_EQ(blocks.begin()->second,
            std::vector<int64_t>(tokens.begin() + 1, tokens.end()));
}

TEST_F(TextTest, NamesATokenThatIsTooGreat) {
  spec_.data.tokens = "uint16";
  spec_.data.classes = 100;
  folder_.Write("input.txt", Little16({1, 2, 3, 4, 100, 5}));

  EXPECT_THAT(Refusal(), AllOf(HasSubstr("token 100 at position 4"),
                               HasSubstr("data.classes is 100")));
}

TEST_F(TextTest, RefusesHalfAToken) {
  spec_.data.tokens = "uint16";
  folder_.Write("input.txt", Little16({1, 2, 3, 4, 5}) + "x");

  EXPECT_THAT(Refusal(), HasSubstr("has 11 bytes"));
}

TEST_F(TextTest, TakesTheTwoFilesOfAFolder) {
  spec_.data.path = folder_.path();
  spec_.data.tokens = "uint16";
  folder_.Write("train.bin", Little16({1, 2, 3, 4, 5}));
  folder_.Write("val.bin", Little16({6, 7, 8, 9, 10}));
  const auto all = WalkAll(**OpenBatchSource(spec_));

  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0][0].As<int64_t>(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(all[1][1].As<int64_t>(), ElementsAre(7, 8, 9, 10));

  folder_.Write("val.bin", Little16({6, 7}));
  EXPECT_THAT(Refusal(), HasSubstr("test split has 2 tokens"));
}

TEST_F(TextTest, NumbersCharactersOfBothFilesAlike) {
  spec_.data.path = folder_.path();
  spec_.data.tokens = "character";
  folder_.Write("train.txt", "bbbbb");
  folder_.Write("val.txt", "ababa");
  const auto all = WalkAll(**OpenBatchSource(spec_));

  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0][0].As<int64_t>(), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(all[1][0].As<int64_t>(), ElementsAre(0, 1, 0, 1));
}

TEST_F(TextTest, NamesAFileThatIsMissing) {
  const absl::Status status = OpenBatchSource(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("input.txt"));

  spec_.data.path = folder_.path();
  EXPECT_THAT(std::string(OpenBatchSource(spec_).status().message()),
              HasSubstr("train.txt"));
}

TEST_F(TextTest, ChecksTheSpecOfWhoeverDidNot) {
  folder_.Write("input.txt", "abcdefghij");
  spec_.data.tokens = "words";

  EXPECT_THAT(Refusal(), HasSubstr("data.tokens: unknown kind of tokens"));
}

TEST(SyntheticTokens, HaveSuccessorsThatMostlyFollow) {
  DataSpec data = DefaultDataSpec("synthetic-tokens");
  data.block = 50;
  data.shape = {50};
  data.classes = 1000;
  const SyntheticTokens set(data, 7);
  Tensor input = Tensor::Allocate(DType::kI64, {2, 50});
  Tensor label = Tensor::Allocate(DType::kI64, {2, 50});
  int followed = 0;
  for (int32_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(
        set.Load({BatchPhase::kTrain, 0, {2 * i, 2 * i + 1}}, input, label)
            .ok());
    for (int j = 0; j < 100; ++j) {
      const int64_t token = input.As<int64_t>()[j];
      ASSERT_TRUE(token >= 0 && token < 1000);
      followed += label.As<int64_t>()[j] == set.SuccessorOf(token);
      if (j % 50 != 49) {
        EXPECT_EQ(label.As<int64_t>()[j], input.As<int64_t>()[j + 1]);
      }
    }
  }
  EXPECT_NEAR(followed, 3000, 150);  // of 4000
}

TEST(SyntheticTokens, AreDrawnFromSeedSplitAndNumber) {
  DataSpec data = DefaultDataSpec("synthetic-tokens");
  const auto draw = [&data](int64_t seed, BatchPhase split, int32_t index) {
    const SyntheticTokens set(data, seed);
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
