// How a pair of sentences becomes a sample (core/model/data_sets.h).
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace paceline {

// Words are tokens that no text is about; sources have at most a block of
// them, targets one less.
//   input   [2 block]; written
//   labels  [block]; written
void WritePair(absl::Span<const int64_t> source,
               absl::Span<const int64_t> target, absl::Span<int64_t> input,
               absl::Span<int64_t> labels);

}  // namespace paceline
