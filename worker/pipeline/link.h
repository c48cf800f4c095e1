// How stages reach one another: in one process, or over gRPC; and where frames
// wait that have come.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/base/tensor.h"
#include "core/data/batch.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/optim/step_gate.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"
#include "core/transfer/frame.h"
#include "core/transfer/tensor_codec.h"

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
// The frame of that key, as Link::Send() takes it.
//   key  of a frame of `batch`
Frame FrameOf(const FrameKey& key, const BatchInfo& batch, TensorList tensors);

// The frames between the replicas of a stage, of each batch: what the batch is,
// a replica's part of the sum that the receiver makes, and that sum.  The
// micro-batch of their keys says which of them.
enum class ReplicaFrame : uint8_t { kBatch, kPart, kSum };
FrameKey ReplicaKey(ReplicaFrame what, int32_t boundary, int64_t batch,
                    int sender, int receiver, int replicas);

// "activation of batch 3, micro-batch 1 at boundary 0".
std::string ToText(const FrameKey& key);

// A parameter that two layers compute with, one of which owns it.  Where these
// are on two workers, it crosses between them once a step: of n stages, the
// k-th tie of a run has boundary n - 1 + k.
struct Tie {
  std::string parameter;
  Shape shape;
  int owner_stage = 0;
  int user_stage = 0;

  friend bool operator==(const Tie&, const Tie&) = default;
};

// The stages that a frame goes from and to: up for activations, down for
// gradients; to the owner of a tie for its gradient, from it for its value.
struct FrameEnds {
  int from = 0;
  int to = 0;
};
// Nothing when there is no such boundary, or it has no frames of that kind.
// Behind n - 1 cuts and the ties there is a boundary for each stage, over which
// its replicas reach one another.
std::optional<FrameEnds> EndsOf(FrameKind kind, int32_t boundary, int stages,
                                const std::vector<Tie>& ties);

// Every (kind, boundary) over which frames may come, also between the replicas
// of stages that have one.
std::vector<std::pair<FrameKind, int32_t>> Crossings(
    int stages, const std::vector<Tie>& ties);

// The bound of one boundary and direction, at least 1; of a tie 1.
int BoundOf(const ScheduleBounds& bounds, FrameKind kind, int32_t boundary);

// The most frames that one replica has sent to another and that one has not
// taken: those of a step, and the announcement of the next batch.
inline constexpr int kReplicaFrames = 4;

// Frames that Send() takes while none is acknowledged: well above what a
// schedule within its bound leaves when acknowledgements are late.
int SendLimit(int bound);

// A neighbour that is out of reach.
struct BrokenLink {
  WorkerId neighbour;
  absl::Duration since;  // for so long
  bool refused = false;  // nobody listens at its address any more
};

// Thread-safe.  One a run, that is for one fence.
class Link {
 public:
  virtual ~Link() = default;

  // Queues a frame and returns at once; sending overlaps compute.  The frame's
  // tensors must not be written afterwards.  header.fence, sequence and tensors
  // are filled in here.
  // Errors:
  //   NotFound           this run has no such boundary
  //   ResourceExhausted  far more frames on the way than the schedule's bound
  //                      (SendLimit): our bug
  //   any                the error that ended the run
  virtual absl::Status Send(Frame frame) = 0;

  // Blocks until the frame is here, whatever else arrived before it.
  // Errors: NotFound  no such boundary; else the error that ended the run.
  virtual absl::StatusOr<Frame> Receive(const FrameKey& key) = 0;

  // Blocks until an activation frame of batch `ordinal` waits at `boundary`,
  // and returns what its header says of the batch.  The frame stays.
  virtual absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary,
                                               int64_t ordinal) = 0;

  // Blocks until the other side has room for `frames` more activation frames
  // over `boundary`, or for its bound if that is less: of replicas there the
  // one that `micro_batch` of batch `ordinal` goes to.  Called before a batch,
  // never inside one: a forward-only schedule has nothing else that keeps a
  // fast stage from running away from a slow one.  At most twice the bound is
  // on the way then.  Returns at once between two stages of one worker.
  // Returns how long of the wait frames were still on the way to the other
  // side: a slow link's part of it, and not a slow neighbour's.
  // Errors: as Receive.
  virtual absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary,
                                                   int64_t ordinal, int frames,
                                                   int micro_batch = 0) = 0;

  // Ends every present and future wait with `why` (not OK).  The first wins.
  virtual void Cancel(absl::Status why) = 0;

  // The neighbours to whom frames go and who are out of reach now, by id.
  virtual std::vector<BrokenLink> BrokenLinks() const { return {}; }

  // Bytes of payload that went to each of them so far.
  virtual std::map<WorkerId, int64_t> SentBytes() const { return {}; }
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

  // The first stage's worker, where reports do not reach it now.
  virtual std::optional<BrokenLink> broken() const { return std::nullopt; }
};

// A run knows this of its neighbours.  The agent derives it from the standing
// order and hands it to the data plane.

struct WorkerAddress {
  WorkerId worker;
  std::string address;  // host:port
};

// Where a stage lives: one worker, or replicas that take turns.
struct StageWiring {
  std::vector<WorkerAddress> replicas;
  RouteTable route;
  // Bytes of the largest frame between replicas that train.
  int64_t replica_frame_bytes = 0;

  // -1: not one of them.
  int IndexOf(WorkerId worker) const;
};

// The replicas that send and receive the frame, of the stages from and to which
// it goes.
std::pair<int, int> ReplicasOfKey(const FrameKey& key, const StageWiring& from,
                                  const StageWiring& to);

// MakeRunWiring() makes it of an order that CheckOrder() has seen: the parts
// fit together.
struct RunWiring {
  Fence fence;
  WorkerId self;
  std::vector<StageWiring> stages;  // of the whole plan
  // [stages - 1]: what crosses each boundary, of one sample and without the
  // labels (core/transfer/frame.h).
  std::vector<std::vector<SampleTensor>> boundaries;
  Shape label_shape;          // of one sample
  std::vector<Tie> ties;      // in layer order of their users
  int64_t micro_batch = 0;    // n <= this
  ScheduleBounds bounds;      // credit and queue bounds
  Codec codec = Codec::kRaw;  // of what is sent to other workers
  // Every frame is acknowledged when it is here, so that its sender can tell a
  // slow link from a slow neighbour.
  bool acknowledges_at_once = false;
  // Called on any thread, under a lock of the link, while the run is open:
  // Link::BrokenLinks() or GateClient::broken() has changed.  Null: there
  // is no listener.
  std::function<void()> on_links = nullptr;
};

// The step gate needs these; they are known once the data set is open.
struct GateOptions {
  TrainSpec train;
  int64_t total_steps = 0;
  int64_t first_step = 0;  // of this attempt
};

// The two ends of a run.  Destroying both closes it.  They are shared with the
// data plane, since one of its streams may be inside at that moment.
struct RunConnections {
  std::shared_ptr<Link> link;
  std::shared_ptr<GateClient> gate;
};

// The frames of one run wait here until the compute thread asks for them.
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
