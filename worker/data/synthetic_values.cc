#include "worker/data/synthetic_values.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace paceline {
namespace {

// Drawn so many at a time, and then mixed: two loops that compilers make wide.
constexpr int64_t kRun = 1024;

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

}  // namespace paceline
