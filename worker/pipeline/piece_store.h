// PieceStore keeps the states of single layers: what this worker's stages
// deposit, and what it copies from other workers so that a machine may be lost.
// A worker gets pieces from others through PieceExchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/cluster/run_order.h"
#include "core/os/thread.h"
#include "core/recover/cut.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

// Immutable.
struct StoredPiece {
  Piece piece;
  // Shared with pieces of the same bytes: a new attempt begins with the state
  // that an earlier one ended with.
  std::shared_ptr<uint8_t[]> data;
  size_t size = 0;
  uint64_t checksum = 0;  // XXH3-64

  absl::Span<const uint8_t> bytes() const { return {data.get(), size}; }
};
// Shared by the store, by streams that send the piece and by a run that begins
// with it: what the store drops may still be on its way.
using PiecePtr = std::shared_ptr<const StoredPiece>;

// Whether one of the ranges has the layer.
bool Contains(absl::Span<const LayerRange> ranges, int layer);
// Adds the layer, which lies above all of the ascending ranges.
void AddLayer(int layer, std::vector<LayerRange>& ranges);

// Copies the state of one layer.
PiecePtr CopyPiece(const Piece& piece, const ScatteredBytes& state);
// The same bytes as a piece of another cut.
PiecePtr AsOf(Cut cut, const StoredPiece& piece);

// Thread-safe.  One a process: runs come and go, what they deposited stays.
class PieceStore {
 public:
  // A job that no standing order names is forgotten after as long.
  static constexpr absl::Duration kForgetAfter = absl::Minutes(1);
  // A link that was broken may be whole again by then.
  static constexpr absl::Duration kDeclines = absl::Minutes(2);

  struct Stats {
    int64_t pieces = 0;
    int64_t bytes = 0;
    int64_t refused = 0;         // since the process began
    int64_t refused_lately = 0;  // since a job was forgotten
  };

  // most_bytes: of pieces altogether, before those of others are refused.
  explicit PieceStore(int64_t most_bytes = std::numeric_limits<int64_t>::max())
      : most_bytes_(most_bytes) {}
  PieceStore(const PieceStore&) = delete;
  PieceStore& operator=(const PieceStore&) = delete;

  // Takes pieces of the process's own stages, always: without them no cut of
  // the job would ever be complete.
  void Deposit(JobId job, absl::Span<const PiecePtr> pieces);
  // Takes another worker's piece.  One that is here already stays.
  // Errors: ResourceExhausted  there is no room
  absl::Status Put(JobId job, PiecePtr piece);
  // The same for a piece of `bytes` that has begun to come.
  absl::Status Admit(JobId job, const Piece& piece, int64_t bytes);
  // Drops the cuts of the attempt of which only some of these layers are here.
  // The missing layers would come from another process, whose state may differ.
  void DropUnfinished(JobId job, int64_t attempt, const LayerRange& layers);
  // Counts like a refused piece for kDeclines: those of another worker cannot
  // be had.
  void Decline();

  // Has Find() find these too, until the caller lets go of them.  They do not
  // count as held: other workers fetch them, but no attempt begins with them.
  void Offer(JobId job, absl::Span<const PiecePtr> pieces);

  PiecePtr Find(JobId job, const Piece& piece) const;  // null: not here

  // The newest deposit of each layer is numbered.
  struct Deposited {
    int64_t number = 0;
    PiecePtr piece;  // null: none
  };
  // Looks at the newest deposits of `layers`, as far as `attempt` made them,
  // for the first one after `number`.
  Deposited NextDeposit(JobId job, int64_t attempt,
                        absl::Span<const LayerRange> layers,
                        int64_t number) const;

  // Says what is held, as ranges of layers.
  using HeldCuts = std::map<Cut, std::vector<LayerRange>>;
  std::map<JobId, HeldCuts> Holdings() const;
  Stats stats() const;

  // --- What may go ---

  // The newest standing order names these jobs.  Drops what their rules let go;
  // jobs that are not named lose nothing yet.  A floor that is lower than the
  // one before counts only where a later attempt began below that.
  void OnKeep(const std::map<JobId, KeepRule>& keep, Instant now);
  // The coordinator that sent it is alive: forgets jobs that have not been
  // named for kForgetAfter.
  void OnAcknowledged(Instant now);
  // Nothing: not known.
  std::optional<Cut> Floor(JobId job) const;
  // Whether the newest standing order names the job.
  bool IsNamed(JobId job) const;

  // --- Waiting ---

  // Calls `changed` whenever pieces came or were refused, or jobs were
  // forgotten, without a lock, on whichever thread did it.  It must be quick.
  int Listen(std::function<void()> changed);
  // Returns when no call of it is under way.
  void Unlisten(int id);

 private:
  struct Job {
    std::map<Piece, PiecePtr> pieces;
    std::map<int, Deposited> newest;  // by layer
    bool is_named = false;            // by the newest standing order
    KeepRule keep;
    std::optional<Instant> unnamed_since;
  };

  void AddLocked(Job& job, const PiecePtr& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AdmitLocked(JobId job, const Piece& piece, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PruneLocked(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLocked(Job& job, absl::FunctionRef<bool(const Piece&)> may_go)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell();

  const int64_t most_bytes_;

  mutable absl::Mutex mutex_;
  std::map<JobId, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<JobId, Piece>, std::weak_ptr<const StoredPiece>> offers_
      ABSL_GUARDED_BY(mutex_);
  int64_t deposits_ ABSL_GUARDED_BY(mutex_) = 0;
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  bool declines_ ABSL_GUARDED_BY(mutex_) = false;
  // The first acknowledgement since: before it nobody has heard of it.
  std::optional<Instant> declines_since_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::shared_ptr<const std::function<void()>>> listeners_
      ABSL_GUARDED_BY(mutex_);
  int next_listener_ ABSL_GUARDED_BY(mutex_) = 0;
  int telling_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Pieces of one cut.
struct PieceWant {
  JobId job;
  Cut cut;
  std::map<int, int64_t> bytes;  // [layer]: all that are wanted
  std::vector<PieceSource> sources;
  bool from_store = true;  // those in this worker's store need no source
};

// Thread-safe.
class PieceExchange {
 public:
  virtual ~PieceExchange() = default;

  // The pieces of a cut, by layer: from this worker's store, else from the
  // sources, by holder, from two of them at once.  Blocks.
  // Errors: Unavailable  no source is left for a layer: says which, and what
  //                      the last one answered
  //         cancel.status()
  virtual absl::StatusOr<std::vector<PiecePtr>> Gather(
      const PieceWant& want, const CancelToken& cancel) = 0;

  // From now on these are copied into the store, and no others.
  virtual void Follow(const std::vector<FollowOrder>& orders) = 0;
};

}  // namespace paceline
