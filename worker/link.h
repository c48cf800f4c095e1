// How stages reach one another: in one process, or over gRPC.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/optim/step_gate.h"
#include "core/transfer/frame.h"

namespace paceline {

// Names one micro-batch at one boundary.  Boundary b lies between stages b and
// b + 1.
struct FrameKey {
  FrameKind kind = FrameKind::kActivation;
  int32_t boundary = 0;
  int64_t batch = 0;  // BatchInfo::ordinal
  int32_t micro_batch = 0;

  friend auto operator<=>(const FrameKey&, const FrameKey&) = default;
};

FrameKey KeyOf(const FrameHeader& header);

// Thread-safe.  One a run, that is for one fence.
class Link {
 public:
  virtual ~Link() = default;

  // Queues a frame and returns at once; sending overlaps compute.  The frame's
  // tensors must not be written afterwards.  header.fence, sequence and tensors
  // are filled in here.
  //
  // Within the schedule's bounds it never waits.  Evaluation has no gate that
  // keeps a worker from running batches ahead of a slower neighbour: there a
  // sender far above the bound waits for room.  That cannot deadlock: whoever
  // is furthest behind is within the bound.
  // Errors:
  //   NotFound           this run has no such boundary
  //   ResourceExhausted  far above the bound between two stages of this
  //                      worker: our bug
  //   any                the error that ended the run
  virtual absl::Status Send(Frame frame) = 0;

  // Blocks until the frame is here, whatever else arrived before it.
  // Errors: NotFound  no such boundary; else the error that ended the run.
  virtual absl::StatusOr<Frame> Receive(const FrameKey& key) = 0;

  // Blocks until an activation frame of batch `ordinal` waits at `boundary`,
  // and returns what its header says of the batch.  The frame stays.
  virtual absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary,
                                               int64_t ordinal) = 0;

  // Blocks until `frames` more activation frames may be sent over `boundary`
  // without passing its bound.  Called before a batch, never inside one: a
  // forward-only schedule has nothing else that keeps a fast stage from
  // running away from a slow one.  frames <= the boundary's bound.
  virtual absl::Status AwaitRoom(int32_t boundary, int frames) = 0;

  // Ends every present and future wait with `why` (not OK).  The first wins.
  virtual void Cancel(absl::Status why) = 0;
};

// The way to the first stage's StepGate.  Thread-safe.
class GateClient {
 public:
  virtual ~GateClient() = default;

  // Hands all of a worker's reports of one step in, and blocks until the
  // verdict.
  // Errors: those of StepGate::Add that cannot be retried; Cancelled or the
  //         error that ended the run.
  virtual absl::StatusOr<StepVerdict> Decide(
      const std::vector<StepReport>& reports) = 0;

  virtual void Cancel(absl::Status why) = 0;
};

}  // namespace paceline
