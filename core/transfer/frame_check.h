// Whether a frame is what the plan says may cross a boundary.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/transfer/frame.h"

namespace paceline {

// Of one boundary, from the plan.
struct BoundaryExpectation {
  Shape sample_shape;       // of the activation, without the sample dimension
  int64_t micro_batch = 0;  // the most samples of one micro-batch
};

// Checks the header of an activation or gradient frame:
//   activation  float32 [n, sample_shape...] and labels int64 [n]
//   gradient    float32 [n, sample_shape...]
// with 1 <= n <= micro_batch, and a batch that makes sense.
// Errors: InvalidArgument, the message says what came and what was expected.
absl::Status CheckFrame(const FrameHeader& header,
                        const BoundaryExpectation& expected);

// "activation", "gradient", "hello".
absl::string_view FrameKindName(FrameKind kind);

// "F32[16, 8, 3]", "F32[16, 8, 3] as bf16".
std::string ToText(const TensorMeta& tensor);

}  // namespace paceline
