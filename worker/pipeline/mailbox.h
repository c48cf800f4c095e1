// Where the frames of one run wait until the compute thread asks for them.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/data/batch.h"
#include "core/transfer/frame.h"
#include "worker/pipeline/link.h"

namespace paceline {

// Thread-safe.  Bounded per (boundary, kind): what arrives above the bound is
// refused.
class Mailbox {
 public:
  // Lets frames of `kind` over `boundary` in, at most `capacity` (> 0) at a
  // time.
  void AddBoundary(FrameKind kind, int32_t boundary, int capacity);

  // Never blocks.
  // Errors (the frame is dropped):
  //   NotFound           no such boundary
  //   ResourceExhausted  the boundary's bound is reached
  //   AlreadyExists      a frame of this key is waiting already
  //   any                what Cancel() was called with
  absl::Status Put(Frame frame);

  // Puts all that can be, wakes once.  Errors: the first one's.
  absl::Status PutAll(std::vector<Frame> frames);

  // Blocks until the frame is here, whatever else arrived before it.
  // Errors: NotFound  no such boundary; else what Cancel() was called with.
  absl::StatusOr<Frame> Take(const FrameKey& key);

  // Blocks until an activation frame of batch `ordinal` waits at `boundary`,
  // and returns what its header says of the batch.  The frame stays.
  // Errors: as Take.
  absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary, int64_t ordinal);

  // Ends every present and future call with `why` (not OK) and drops what
  // waits.  The first wins; true for that one.
  bool Cancel(absl::Status why);

 private:
  struct Bound {
    int capacity = 0;
    int waiting = 0;
  };

  absl::Status PutLocked(Frame frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLocked(FrameKind kind, int32_t boundary) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Null when none waits.
  const Frame* FirstOfBatchLocked(int32_t boundary, int64_t ordinal) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // OK while the run lives
  std::map<std::pair<FrameKind, int32_t>, Bound> bounds_
      ABSL_GUARDED_BY(mutex_);
  std::map<FrameKey, Frame> frames_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
