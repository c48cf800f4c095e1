// The frame of the data plane (proto/paceline/v1/stage.proto, StageFrame):
// its fields, and its bytes written and read by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/ids.h"
#include "core/base/tensor.h"
#include "core/model/batch.h"
#include "core/transfer/tensor_codec.h"

namespace paceline {

// Values are those of paceline.v1.FrameKind.
enum class FrameKind : uint8_t {
  kHello = 1,
  kActivation = 2,
  kGradient = 3,
  // Of a parameter that two stages share.
  kTiedGradient = 4,
  kTiedValue = 5,
};

struct TensorMeta {
  DType dtype = DType::kUnspecified;
  Shape shape;
  Codec codec = Codec::kRaw;

  int64_t bytes() const { return TensorBytes(dtype, shape); }  // in memory
  int64_t wire_bytes() const { return EncodedBytes(codec, dtype, shape); }
  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};

struct FrameHeader {
  Fence fence;
  FrameKind kind = FrameKind::kActivation;
  int32_t boundary = 0;
  int64_t sequence = 0;  // set by the sender of the stream
  BatchInfo batch;
  int32_t micro_batch = 0;
  int32_t route = 0;
  // Unix microseconds, for people; 0: not said.
  int64_t admitted_us = 0;  // the first stage took the micro-batch in
  int64_t sent_us = 0;      // this frame was handed to the sender
  // As received; a sender's are those of Frame::tensors.
  std::vector<TensorMeta> tensors;

  bool is_tied() const {
    return kind == FrameKind::kTiedGradient || kind == FrameKind::kTiedValue;
  }
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// A micro-batch on its way.
struct Frame {
  FrameHeader header;
  TensorList tensors;
};

}  // namespace paceline
