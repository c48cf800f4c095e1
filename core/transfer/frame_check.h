// Whether a frame is what the plan says may cross a boundary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/model/description.h"
#include "core/transfer/frame.h"

namespace paceline {

// Of one boundary, from the plan.
struct BoundaryExpectation {
  // Of an activation but its labels, of one sample (BoundaryTensors); or the
  // whole tensor that two stages share.
  std::vector<SampleTensor> tensors;
  int64_t micro_batch = 0;  // the most samples of one micro-batch
  Shape label_shape;        // of one sample
};

// Checks the header of a frame:
//   activation  a tensor [n, shape...] for each of `tensors`, and labels int64
//               [n, label_shape...]
//   gradient    those of `tensors` that are float32
//   tied        the one of `tensors`, as it is
// with 1 <= n <= micro_batch, and a batch that makes sense: of no more samples
// than its micro-batches have room for, where a frame has any.
// Errors: InvalidArgument, the message says what came and what was expected.
absl::Status CheckFrame(const FrameHeader& header,
                        const BoundaryExpectation& expected);

// "activation", "gradient", "tied gradient", "tied value", "hello".
absl::string_view FrameKindName(FrameKind kind);

// "F32[16, 8, 3]", "F32[16, 8, 3] as bf16".
std::string ToText(const TensorMeta& tensor);

}  // namespace paceline
