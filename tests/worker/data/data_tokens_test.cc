// Texts, labelled texts and pairs of sentences, of files and of none, through
// OpenBatchSource.
#include <algorithm>
#include <set>

#include "core/data/data_sets.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/synthetic.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Little16(const std::vector<int>& tokens) {
  std::string bytes;
  for (const int token : tokens) {
    bytes += static_cast<char>(token);
    bytes += static_cast<char>(token >> 8);
  }
  return bytes;
}

std::string BytesUpTo(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(i);
  return text;
}

// A sample: its tokens and its labels, in a row.
using TokenSample = std::vector<int64_t>;
using Samples = std::set<TokenSample>;

class TokensTest : public DataTest {
 protected:
  explicit TokensTest(const std::string& name = "text", int block = 4) {
    Take(name, block);
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

TEST_F(TokensTest, CutsBytesIntoBlocksAndSaysWhatFollows) {
  folder_.Write("input.txt", "abcdefghijk\xff");
  EXPECT_THAT(Splits(),
              ElementsAre(Samples{{'a', 'b', 'c', 'd', 'b', 'c', 'd', 'e'},
                                  {'e', 'f', 'g', 'h', 'f', 'g', 'h', 'i'}}))
      << "the rest is less than a block and one";

  folder_.Write("input.txt", "abcde");
  EXPECT_EQ(Splits()[0].size(), 1u) << "just one block";
}

TEST_F(TokensTest, InferenceTakesTheEndOfATextAndSpeaksOfNoTraining) {
  spec_.kind = "infer";
  for (const auto& [text, fraction, refusal] :
       {std::tuple{"abcdefghij", 0.9, ""},
        {"abcdefghij", 1.0, ""},
        {"abcd", 1.0,
         "what is to be predicted has 4 tokens, a block of 4 needs 5; lower "
         "data.block"},
        {"abcd", 0.5,
         "has 2 tokens, a block of 4 needs 5; lower data.block; "
         "data.test_fraction 1 takes all of it"},
        {"abcdefghij", 0.0, "data.test_fraction 1 takes all of a text"}}) {
    folder_.Write("input.txt", text);
    spec_.data.test_fraction = fraction;

    const absl::Status opened = OpenBatchSource(spec_, {}).status();

    if (*refusal == '\0') {
      EXPECT_TRUE(opened.ok()) << opened;
      continue;
    }
    EXPECT_THAT(std::string(opened.message()),
                AllOf(HasSubstr(refusal), Not(HasSubstr("training"))));
  }
}

TEST_F(TokensTest, SaysWhatIsWrongWithAText) {
  const struct {
    std::string text;
    const char* tokens;
    int classes;
    double test_fraction;
    std::vector<const char*> why;
  } kBad[] = {
      {"abcd",
       "byte",
       256,
       0,
       {"training split has 4 tokens", "needs 5", "lower data.block"}},
      {"", "byte", 256, 0, {"has 0 tokens"}},
      {std::string(49, 'x'),
       "byte",
       256,
       0.1,
       {"test split has 4 tokens", "data.test_fraction"}},
      {"abcdefghij",
       "character",
       9,
       0,
       {"10 different characters", "data.classes is 9"}},
      {Little16({1, 2, 3, 4, 100, 5}),
       "uint16",
       100,
       0,
       {"token 100 at position 4", "data.classes is 100"}},
      {Little16({1, 2, 3, 4, 5}) + "x", "uint16", 256, 0, {"has 11 bytes"}},
      {"abcdefghij", "words", 256, 0, {"data.tokens: unknown kind of tokens"}},
      {"abc\xff", "character", 256, 0, {"is not UTF-8 at byte 3; "}},
  };
  for (const auto& bad : kBad) {
    folder_.Write("input.txt", bad.text);
    spec_.data.tokens = bad.tokens;
    spec_.data.classes = bad.classes;
    spec_.data.test_fraction = bad.test_fraction;
    const std::string refusal = Refusal();
    for (const char* why : bad.why) EXPECT_THAT(refusal, HasSubstr(why));
  }
  for (const std::string text :
       {"abc\x80", "abc\xc3", "abc\xc3(", "abc\xc0\x80", "abc\xed\xa0\x80",
        "abc\xf4\x90\x80\x80", "abc\xe2\x82"}) {
    folder_.Write("input.txt", text);
    EXPECT_THAT(Refusal(), HasSubstr("is not UTF-8 at byte "));
  }
}

TEST_F(TokensTest, EvaluatesOnTheEndOfTheFileOrOnAllOfIt) {
  folder_.Write("input.txt", BytesUpTo(100));
  spec_.data.test_fraction = 0.25;
  const auto all = WalkAll(spec_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0][0].shape, ElementsAre(18, 4)) << "of 75 tokens";
  EXPECT_THAT(all[1][0].shape, ElementsAre(6, 4)) << "of 25 tokens";
  EXPECT_EQ(all[1][0].As<int64_t>()[0], 75);
  EXPECT_EQ(all[1][1].As<int64_t>().back(), 99);
  for (const int64_t token : all[0][1].As<int64_t>()) EXPECT_LT(token, 75);

  spec_.data.test_fraction = 1;  // for inference
  const auto whole = WalkAll(spec_);
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_THAT(whole[1][0].shape, ElementsAre(24, 4)) << "of 100 tokens";
  EXPECT_EQ(whole[1][0].As<int64_t>()[0], 0);
}

TEST_F(TokensTest, ShufflesBlocksAnewEveryEpoch) {
  folder_.Write("input.txt", BytesUpTo(200));
  spec_.train.epochs = 2;
  const auto all = WalkAll(spec_);

  EXPECT_NE(BytesOf({all[0]}), BytesOf({all[1]}));
  spec_.data.workers = 5;
  EXPECT_TRUE(BytesOf(WalkAll(spec_)) == BytesOf(all));
}

TEST_F(TokensTest, NumbersCharactersByTheirRank) {
  folder_.Write("input.txt",
                "c\xc3\xa4"
                "a\xf0\x9f\x9a\xb2"
                "a");  // cäa🚲a
  spec_.data.tokens = "character";
  spec_.data.classes = 4;

  EXPECT_THAT(Splits(), ElementsAre(Samples{{1, 2, 0, 3, 2, 0, 3, 0}}));
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
  for (int i = 0; i < 10'001; ++i) tokens.push_back(i * 5 % 65536);
  folder_.Write("input.txt", Little16(tokens));
  TokenSample expected(tokens.begin(), tokens.end() - 1);
  expected.insert(expected.end(), tokens.begin() + 1, tokens.end());

  EXPECT_EQ(Splits(), std::vector<Samples>{{expected}});
}

TEST_F(TokensTest, TakesTheTwoFilesOfAFolder) {
  spec_.data.path = folder_.path();
  spec_.data.tokens = "character";
  folder_.Write("train.txt", "bbbbb");
  folder_.Write("val.txt", "ababa");
  EXPECT_THAT(Splits(), ElementsAre(Samples{{1, 1, 1, 1, 1, 1, 1, 1}},
                                    Samples{{0, 1, 0, 1, 1, 0, 1, 0}}))
      << "characters of both have the same numbers";

  spec_.data.tokens = "uint16";
  folder_.Write("train.bin", Little16({1, 2, 3, 4, 5}));
  folder_.Write("val.bin", Little16({6, 7, 8, 9, 10}));
  EXPECT_THAT(Splits(), ElementsAre(Samples{{1, 2, 3, 4, 2, 3, 4, 5}},
                                    Samples{{6, 7, 8, 9, 7, 8, 9, 10}}));
  folder_.Write("val.bin", Little16({6, 7}));
  EXPECT_THAT(Refusal(), HasSubstr("test split has 2 tokens"));
}

TEST_F(TokensTest, SaysWhatIsNotUsedAndWhatIsNoText) {
  const auto notes = [this](const std::string& text) {
    folder_.Write("input.txt", text);
    const auto source = OpenBatchSource(spec_);
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? (*source)->Facts().notes : std::vector<std::string>();
  };
  EXPECT_THAT(notes("abcdefghi"), IsEmpty()) << "two blocks and what follows";

  EXPECT_THAT(notes("abcdefghijk"),
              ElementsAre(HasSubstr("the last 2 tokens for training and 0")));
  EXPECT_THAT(notes("abcdef\r\n\n"), ElementsAre(HasSubstr("CR LF")));
  EXPECT_THAT(notes("\xef\xbb\xbf"
                    "abcdef"),
              ElementsAre(HasSubstr("byte-order mark")));
  EXPECT_THAT(notes(std::string("\xff\xfe"
                                "a\0b\0c\0z",
                                9)),
              ElementsAre(HasSubstr("UTF-16")));
}

TEST_F(TokensTest, AByteOrderMarkIsNoCharacter) {
  spec_.data.tokens = "character";
  folder_.Write("input.txt",
                "\xef\xbb\xbf"
                "abcde");

  EXPECT_THAT(Splits(), ElementsAre(Samples{{0, 1, 2, 3, 1, 2, 3, 4}}));
  EXPECT_EQ(OpenBatchSource(spec_).value()->Facts().classes,
            "U+0061\nU+0062\nU+0063\nU+0064\nU+0065");
  folder_.Write("input.txt", std::string("\xff\xfe"
                                         "a\0b\0c\0",
                                         8));
  EXPECT_THAT(Refusal(), HasSubstr("is UTF-16; save it as UTF-8"));
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

TEST_F(TokensTest, NamesWhatElseIsInTheFolder) {
  spec_.data.path = folder_.path();
  folder_.Write("train.txt", "bbbbb");
  folder_.Write("val.txt", "ababa");
  folder_.Write("more.txt", "ababa");

  EXPECT_THAT(OpenBatchSource(spec_).value()->Facts().notes,
              ElementsAre(AllOf(HasSubstr("1 file is not used"),
                                HasSubstr("more.txt"))));
}

class TextLabelsTest : public TokensTest {
 protected:
  TextLabelsTest() : TokensTest("text-labels", 6) { spec_.data.classes = 12; }
};

TEST_F(TextLabelsTest, BeginsCutsAndFillsUp) {
  spec_.data.padding = 1;
  folder_.Write("input.txt", "0\tab\n11\tabcdefgh\n3\t\n3\ta\tb");

  EXPECT_THAT(Splits(), ElementsAre(Samples{{2, 'a', 'b', 1, 1, 1, 0},
                                            {2, 'a', 'b', 'c', 'd', 'e', 11},
                                            {2, 1, 1, 1, 1, 1, 3},
                                            {2, 'a', '\t', 'b', 1, 1, 3}}));
}

TEST_F(TextLabelsTest, TheLastLinesAreTheTestSplitOrAFileOfTheirOwn) {
  spec_.data.test_fraction = 0.5;
  folder_.Write("input.txt", "0\ta\n1\tb\n2\tc\n3\td\n");
  auto splits = Splits();
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].size(), 2u);
  EXPECT_TRUE(splits[1].contains({2, 'd', 0, 0, 0, 0, 3}));

  folder_.Write("two/train.txt", "0\ta\n1\tb\n2\tc\n");
  folder_.Write("two/val.txt", "4\te\n");
  spec_.data.path = folder_.Path("two");
  splits = Splits();
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].size(), 3u);
  EXPECT_EQ(splits[1], (Samples{{2, 'e', 0, 0, 0, 0, 4}}));
}

// Nobody trains on them: they may have no label.
TEST_F(TextLabelsTest, AMarkAtTheBeginningAndReturnsAtTheEndsAreNoText) {
  SetBlock(4);
  folder_.Write("input.txt", "0\ta\n1\tb\rc\n");
  const auto plain = Splits();
  folder_.Write("input.txt",
                "\xef\xbb\xbf"
                "0\ta\r\n1\tb\rc\r\n");

  EXPECT_EQ(Splits(), plain);

  folder_.Write("input.txt", std::string("\xff\xfe"
                                         "0\0\t\0a\0\n\0",
                                         10));
  EXPECT_THAT(Refusal(), HasSubstr("is UTF-16; save it as UTF-8"));
}

TEST_F(TextLabelsTest, SaysThatTheLinesAreSortedOrCut) {
  spec_.data.test_fraction = 0.25;
  const auto notes = [this](const std::string& text) {
    folder_.Write("input.txt", text);
    return OpenBatchSource(spec_).value()->Facts().notes;
  };
  EXPECT_THAT(notes("0\ta\n1\tb\n0\tc\n1\td\n"), IsEmpty());

  EXPECT_THAT(notes("0\ta\n0\tb\n1\tc\n1\td\n"),
              ElementsAre(AllOf(HasSubstr("sorted by label"),
                                HasSubstr("evaluation gets the labels 1 and "
                                          "training 0, 1"))));
  EXPECT_THAT(notes("0\ta\n0\tb\n0\tc\n1\td\n"),
              ElementsAre(HasSubstr("sorted by label")));
  EXPECT_THAT(notes("0\tabcdefghijklmnopqrst\n1\tb\n0\tc\n1\td\n"),
              ElementsAre(HasSubstr("the ends of 1 of 4 lines are not used")));
}

// Only some parts of a large text were hashed.
TEST_F(TextLabelsTest, KnowsEachLineOfALargeFile) {
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

TEST_F(TextLabelsTest, AllLinesMayBeForInference) {
  folder_.Write("input.txt", "0\ta\n-100\tb\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 2 has label -100, none, from which "
                                   "nothing can be learnt"));

  spec_.kind = "infer";
  spec_.data.test_fraction = 1;
  const auto splits = Splits();

  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[1],
            (Samples{{2, 'a', 0, 0, 0, 0, 0}, {2, 'b', 0, 0, 0, 0, kNoLabel}}));
  for (const char* label : {"-1", "--100", "-", "1-00"}) {
    folder_.Write("input.txt", absl::StrCat(label, "\ta\n"));
    EXPECT_THAT(Refusal(), HasSubstr("line 1 does not begin with a label"))
        << label;
  }
}

TEST_F(TextLabelsTest, NamesTheLineThatIsWrong) {
  const std::pair<std::string, const char*> kBad[] = {
      {"0\ta\nhello\n", "line 2 does not begin with a label"},
      {"0\ta\n-1\tb\n", "line 2 does not begin with a label"},
      {"\ta\n", "line 1 does not begin with a label"},
      {"12\ta\n", "line 1 has label 12, the job's data.classes is 12"},
      {"99999999999\ta\n", "line 1 does not begin with a label"},
      {"0\ta\n1\n", "line 2 has no tabulator"},
      {"0\ta\n\n1\tb\n", "line 2 has no tabulator"},
      {"0\ta\n1", "line 2 has no tabulator"},
      {std::string("0\ta\n1\tb\0c\n", 10), "line 2 has a byte 0 in its text"},
      {"", "has 0 lines for training"},
  };
  for (const auto& [text, why] : kBad) {
    folder_.Write("input.txt", text);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("input.txt"), HasSubstr(why)))
        << text;
  }
  spec_.data.test_fraction = 0.1;
  folder_.Write("input.txt", "0\ta\n1\tb\n");
  EXPECT_THAT(Refusal(), HasSubstr("0 for evaluation"));
}

constexpr int64_t kPairBlock = 5;

class PairsTest : public TokensTest {
 protected:
  PairsTest() : TokensTest("text-pairs", kPairBlock) {}
};

TEST_F(PairsTest, BeginEndFillUpAndAreCut) {
  folder_.Write("input.txt", "ab\txyz\nabcdefg\tuvwxyz\na\t\nb\ta\tb");

  const int64_t no = kNoLabel;
  EXPECT_THAT(
      Splits(),
      ElementsAre(Samples{
          {'a', 'b', 0, 0, 0, 2, 'x', 'y', 'z', 0, 'x', 'y', 'z', 3, no},
          {'a', 'b', 'c', 'd', 'e', 2, 'u', 'v', 'w', 'x', 'u', 'v', 'w', 'x',
           3},
          {'a', 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, no, no, no, no},
          {'b', 0, 0, 0, 0, 2, 'a', '\t', 'b', 0, 'a', '\t', 'b', 3, no}}));
}

TEST_F(PairsTest, NameTheLineThatIsNoPair) {
  const std::pair<std::string, const char*> kBad[] = {
      {"a\tb\nno tabulator\n", "input.txt: line 2"},
      {"a\tb\nno tabulator\n", "SOURCE TAB TARGET"},
      {"\tb\n", "line 1 has nothing before its tabulator"},
      {"a\tb\n\n", "line 2 has no tabulator"},
      {"a\tb\x03\n", "line 1 has a byte 3"},
      {std::string("a\0\tb\n", 5), "line 1 has a byte 0"},
      {"", "has 0 lines for training"}};
  for (const auto& [text, why] : kBad) {
    folder_.Write("input.txt", text);
    EXPECT_THAT(Refusal(), HasSubstr(why)) << text;
  }
}

TEST_F(PairsTest, SyntheticTargetsAreTheirSourcesBackwardsInAnotherAlphabet) {
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

TEST_F(PairsTest, TheAlphabetHasEveryWordOnceAndIsTheSeeds) {
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
