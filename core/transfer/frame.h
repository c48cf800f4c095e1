// The header of every frame, between stages (paceline.v1.StageFrame) and
// between members of a round group (paceline.v1.RoundFrame); whether the plan
// lets a frame cross a boundary, and to which life of a job it belongs.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/ids.h"
#include "core/base/tensor.h"
#include "core/data/batch.h"
#include "core/model/description.h"
#include "core/round/view.h"
#include "core/transfer/tensor_codec.h"

namespace paceline {

// Values are those of paceline.v1.FrameKind.
enum class FrameKind : uint8_t {
  kHello = 1,
  kActivation = 2,
  kGradient = 3,
  // The gradient and the value of a parameter that two stages share.
  kTiedGradient = 4,
  kTiedValue = 5,
  kReplica = 6,  // between the replicas of a stage
};

struct TensorMeta {
  DType dtype = DType::kUnspecified;
  Shape shape;
  Codec codec = Codec::kRaw;

  int64_t bytes() const { return TensorBytes(dtype, shape); }  // in memory
  int64_t wire_bytes() const { return EncodedBytes(codec, dtype, shape); }
  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};

// Names the bytes beside a round's message, as paceline.v1.PayloadKey.
struct PayloadKey {
  enum class Kind : uint8_t { kPart = 1, kResult = 2 };
  Kind kind = Kind::kPart;
  int64_t step = 0;
  int32_t shard = 0;
  uint64_t variant = 0;

  friend auto operator<=>(const PayloadKey&, const PayloadKey&) = default;
};

// The largest chunk of a round's payload.
constexpr int64_t kMaxRoundDataBytes = 256 << 10;

struct FrameHeader {
  Fence fence;

  // Only frames of stages have these.
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

  // Only frames of rounds have these.
  MemberId from;
  MemberId to;
  std::optional<PayloadKey> payload;         // of the chunk or the message
  int64_t payload_bytes = 0;                 // in all
  int64_t chunk_bytes = kMaxRoundDataBytes;  // the last chunk may have less
  int32_t chunk = 0;                         // number of the chunk

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

// Whether a frame is what the plan says may cross a boundary.

// The tensors that the plan lets cross one boundary.
struct BoundaryExpectation {
  // The tensors of one sample of an activation, without its labels
  // (BoundaryTensors); or the whole tensor that two stages share.
  std::vector<SampleTensor> tensors;
  int64_t micro_batch = 0;  // the most samples of one micro-batch
  Shape label_shape;        // of one sample
};

// Checks the header of a frame:
//   activation  a tensor [n, shape...] for each of `tensors`, and labels int64
//               [n, label_shape...]
//   gradient    those of `tensors` that are float32
//   tied        the one of `tensors`, as it is
//   replica     bytes, at most as many as the one of `tensors`
// with 1 <= n <= micro_batch, and a batch that makes sense: of no more samples
// than its micro-batches have room for, where a frame has any.
// Errors: InvalidArgument, the message says what came and what was expected.
absl::Status CheckFrame(const FrameHeader& header,
                        const BoundaryExpectation& expected);

// "activation", "gradient", "tied gradient", "tied value", "replica", "hello".
absl::string_view FrameKindName(FrameKind kind);

// "F32[16, 8, 3]", "F32[16, 8, 3] as bf16".
std::string ToText(const TensorMeta& tensor);

// Which life of a job a frame belongs to, as seen from this worker.

// The highest fence of each job that a worker has left; of the newest jobs, so
// that it does not grow for ever.
class LeftFences {
 public:
  // The fence, or a higher one of its job, was left.
  bool Has(const Fence& fence) const;
  void Add(const Fence& fence);

 private:
  std::map<JobId, Fence> fences_;
};

// The fences that this worker knows.  Those of other jobs are newer to it: an
// older job may move to a worker that ran a later one.
struct FenceState {
  std::optional<Fence> open;  // the run it is in
  LeftFences left;
};

enum class FenceVerdict : uint8_t {
  kAccept,     // of the open run
  kDropOlder,  // left behind by an earlier life: drop, count, keep the stream
  kHoldNewer,  // read no further until this worker's own order arrives
};

FenceVerdict DecideFence(const FenceState& mine, const Fence& theirs);

// "job=3 attempt=1 plan=7".
std::string ToText(const Fence& fence);

}  // namespace paceline
