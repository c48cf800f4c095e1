// What all models of tokens check of their sizes.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/base/tensor.h"
#include "core/model/job_spec.h"

namespace paceline {

// The most tokens that a model knows, or a sample has.
inline constexpr int64_t kMostTokens = 1 << 20;

// Errors: InvalidArgument  unless least <= value <= most; `what` is the size's
//         name in the job file
absl::Status CheckModelSize(const ModelSpec& spec, const char* what,
                            int64_t value, int64_t least, int64_t most);

// `spec` with the sizes that it leaves to the data filled in: positions by
// those of a sample, vocabulary by `tokens`, how many different ones there are.
ModelSpec WithSizesOfData(ModelSpec spec, const Shape& input, int64_t tokens);

// Depth, width, heads, positions and vocabulary in range, and a sample of
// tokens [block] for which there are positions.
//   before  positions that no token has, before the first one's
// Errors: InvalidArgument  says which, and what would do
absl::Status CheckLanguageSizes(const ModelSpec& spec, const Shape& input,
                                int64_t before);

}  // namespace paceline
