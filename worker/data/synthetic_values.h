// The values of made-up pictures: what a sample is drawn from is told in
// synthetic_set.h.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/random.h"

namespace paceline {

// Numbers uniform in [-1, 1), in steps of 2^-15: so many from every draw.
inline constexpr int64_t kValuesADraw = 4;

// values[i] = pattern + noise / 2, both from their own source.
using MixValues = void (*)(SplitMix64& pattern, SplitMix64& noise,
                           absl::Span<float> values);

// The ways to do so on this CPU, the quickest one last.  All give the same
// bytes: every product and sum is exact.  The first stage has the loader, and a
// plain loop over four pictures of 224 x 224 takes 0.5 ms of its CPU; with AVX2
// 0.26, with AVX-512 0.12 (2026-11).
const std::vector<MixValues>& WaysToMixValues();

}  // namespace paceline
