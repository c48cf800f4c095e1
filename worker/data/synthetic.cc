#include "worker/data/synthetic.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

namespace paceline {
namespace {

// Each keeps its randomness apart from that of the others.
constexpr uint64_t kTemplates = 1;
constexpr uint64_t kImages = 2;
constexpr uint64_t kSuccessors = 3;
constexpr uint64_t kTokens = 4;
constexpr uint64_t kPreferences = 5;
constexpr uint64_t kLabels = 6;
constexpr uint64_t kAlphabet = 7;
constexpr uint64_t kPairs = 8;

constexpr int64_t kPreferred = 8;  // tokens of a class

// Numbers that one draw gives.
constexpr int64_t kValuesADraw = 4;
// Values are drawn in runs of this length and then mixed: compilers vectorize
// two loops.
constexpr int64_t kRun = 1024;

int64_t Below(SplitMix64& random, int64_t end) {
  return static_cast<int64_t>(random.Below(end));
}

static_assert(std::endian::native == std::endian::little,
              "the first value of a draw is its lowest 16 bits");

// Compiled once for each set of instructions: these must be inlined there.
#define PACELINE_INLINE inline __attribute__((always_inline))

PACELINE_INLINE void Draw(SplitMix64& random, int64_t values, int16_t* drawn) {
  for (int64_t i = 0; i < values; i += kValuesADraw) {
    const uint64_t draw = random.Next();
    std::memcpy(drawn + i, &draw, sizeof(draw));
  }
}

PACELINE_INLINE void Add(const int16_t* __restrict pattern,
                         const int16_t* __restrict noise, int64_t count,
                         float* __restrict values) {
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(pattern[i]) * 0x1.0p-15f +
                static_cast<float>(noise[i]) * 0x1.0p-16f;
  }
}

PACELINE_INLINE void Mix(SplitMix64& pattern, SplitMix64& noise,
                         absl::Span<float> values) {
  int16_t of_pattern[kRun], of_noise[kRun];
  const auto size = static_cast<int64_t>(values.size());
  for (int64_t i = 0; i < size; i += kRun) {
    const int64_t count = std::min(kRun, size - i);
    Draw(pattern, count, of_pattern);
    Draw(noise, count, of_noise);
    Add(of_pattern, of_noise, count, values.data() + i);
  }
}

void MixPlainly(SplitMix64& pattern, SplitMix64& noise,
                absl::Span<float> values) {
  Mix(pattern, noise, values);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) void MixWithAvx2(SplitMix64& pattern,
                                                 SplitMix64& noise,
                                                 absl::Span<float> values) {
  Mix(pattern, noise, values);
}

// DQ multiplies 64-bit numbers, which is what a draw does.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void
MixWithAvx512(SplitMix64& pattern, SplitMix64& noise,
              absl::Span<float> values) {
  Mix(pattern, noise, values);
}
#endif

std::vector<MixValues> FindWays() {
  std::vector<MixValues> ways = {MixPlainly};
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) ways.push_back(MixWithAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    ways.push_back(MixWithAvx512);
  }
#endif
  return ways;
}

}  // namespace

const std::vector<MixValues>& WaysToMixValues() {
  static const std::vector<MixValues> ways = FindWays();
  return ways;
}

SyntheticSet::SyntheticSet(const DataSpec& data, int64_t seed)
    : SampleSet(FormatOf(data), data.train_samples, data.test_samples),
      data_(data),
      seed_(static_cast<uint64_t>(seed)),
      kind_(FindDataSet(data.name)->kind) {
  if (kind_ != SampleKind::kPairs) return;
  alphabet_.resize(data.classes - kFirstWordToken);
  std::iota(alphabet_.begin(), alphabet_.end(), kFirstWordToken);
  SplitMix64 random(MixSeed({kAlphabet, seed_}));
  for (size_t i = alphabet_.size(); i-- > 1;) {  // Fisher and Yates
    std::swap(alphabet_[i], alphabet_[random.Below(i + 1)]);
  }
}

absl::Status SyntheticSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                                Tensor& labels) const {
  constexpr std::pair<uint64_t, Make> kMakers[] = {
      {kImages, &SyntheticSet::MakeImage},     // SampleKind::kImages
      {kTokens, &SyntheticSet::MakeTokens},    // kTokens
      {kLabels, &SyntheticSet::MakeLabelled},  // kLabelledTokens
      {kPairs, &SyntheticSet::MakePair}};      // kPairs
  const auto& [stream, make] = kMakers[static_cast<int>(kind_)];
  for (size_t i = 0; i < place.indices.size(); ++i) {
    SplitMix64 random(
        MixSeed({stream, seed_, static_cast<uint64_t>(place.split),
                 static_cast<uint64_t>(place.indices[i])}));
    (this->*make)(random, i, inputs, labels);
  }
  return absl::OkStatus();
}

void SyntheticSet::MakeImage(SplitMix64& random, size_t i, Tensor& inputs,
                             Tensor& labels) const {
  const absl::Span<float> values = SampleOf<float>(inputs, i);
  const int64_t label = Below(random, data_.classes);
  labels.As<int64_t>()[i] = label;
  // Drawn again for every sample: a thousand classes of photographs would fill
  // half a gigabyte.
  SplitMix64 pattern(MixSeed({kTemplates, seed_}));
  pattern.Skip(label *
               ((std::ssize(values) + kValuesADraw - 1) / kValuesADraw));
  WaysToMixValues().back()(pattern, random, values);
}

int64_t SyntheticSet::SuccessorOf(int64_t token) const {
  SplitMix64 random(
      MixSeed({kSuccessors, seed_, static_cast<uint64_t>(token)}));
  return Below(random, data_.classes);
}

void SyntheticSet::MakeTokens(SplitMix64& random, size_t i, Tensor& inputs,
                              Tensor& labels) const {
  const absl::Span<int64_t> input = SampleOf<int64_t>(inputs, i);
  const absl::Span<int64_t> label = SampleOf<int64_t>(labels, i);
  int64_t token = Below(random, data_.classes);
  for (size_t j = 0; j < input.size(); ++j) {
    input[j] = token;
    token = Below(random, 4) == 0 ? Below(random, data_.classes)
                                  : SuccessorOf(token);
    label[j] = token;
  }
}

void SyntheticSet::MakeLabelled(SplitMix64& random, size_t i, Tensor& inputs,
                                Tensor& labels) const {
  const int64_t block = data_.block;
  const int64_t label = Below(random, data_.classes);
  labels.As<int64_t>()[i] = label;
  const absl::Span<int64_t> tokens = SampleOf<int64_t>(inputs, i);
  const int64_t length = block - Below(random, block / 2 + 1);
  for (int64_t j = 0; j < length; ++j) {
    const bool anything = Below(random, 4) == 0;
    SplitMix64 preference(
        MixSeed({kPreferences, seed_, static_cast<uint64_t>(label),
                 static_cast<uint64_t>(Below(random, kPreferred))}));
    const int64_t drawn =
        Below(anything ? random : preference, data_.vocabulary - 1);
    tokens[j] = drawn < data_.padding ? drawn : drawn + 1;
  }
  std::fill(tokens.begin() + length, tokens.end(), data_.padding);
}

void SyntheticSet::MakePair(SplitMix64& random, size_t i, Tensor& inputs,
                            Tensor& labels) const {
  const int64_t least = data_.block / 2;
  std::vector<int64_t> source(least + Below(random, data_.block - least));
  for (int64_t& word : source) {
    word = kFirstWordToken + Below(random, std::ssize(alphabet_));
  }
  std::vector<int64_t> target;
  std::transform(source.rbegin(), source.rend(), std::back_inserter(target),
                 [this](int64_t word) { return Translate(word); });
  WritePair(source, target, SampleOf<int64_t>(inputs, i),
            SampleOf<int64_t>(labels, i));
}

}  // namespace paceline
