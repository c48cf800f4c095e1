// A CheckpointStore keeps the states of all layers of a job after some step, on
// the coordinator's disk.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "coordinator/jobs/records.h"
#include "core/base/ids.h"
#include "core/recover/cut.h"
#include "core/weights/safetensors_layout.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/stage.pb.h"

namespace paceline {

struct CheckpointId {
  JobId job;  // whose state it is
  int64_t step = 0;
};

// A worker's process that holds a piece.
struct PieceHolder {
  std::string address;
  Incarnation process;
};

struct CheckpointOrder {
  CheckpointId id;
  v1::CheckpointManifest manifest;  // without the file's numbers
  StateLayout layout;
  std::vector<std::vector<PieceHolder>> holders;  // [layers]
};

// A piece, and the holder to ask for it.
struct HeldPiece {
  PieceHolder holder;
  JobId job;
  Piece piece;
  int64_t bytes = 0;
  int64_t offset = 0;  // bytes received already
};

// Gets pieces from workers.  Thread-safe.
class PieceFetcher {
 public:
  virtual ~PieceFetcher() = default;

  // Passes the bytes of a piece to `take`, in order, from ask.offset on.
  // Blocks while bytes come.  Returns the checksum that the holder states.
  // Errors: those of Stage.Pieces, of `take`, and
  //         DeadlineExceeded  too few bytes came for a while
  //         InvalidArgument   the bytes are not this piece
  //         Cancelled         after Cancel()
  virtual absl::StatusOr<uint64_t> Fetch(
      const HeldPiece& ask,
      absl::FunctionRef<absl::Status(absl::string_view)> take) = 0;
  // Ends the present fetch, and later ones at once.
  virtual void Cancel() = 0;
};

// Thread-safe; never blocks.  Every `done` is called exactly once, from a
// thread of the store.
//
// Errors of methods that read:
//   NotFound  there is no such checkpoint
//   DataLoss  it is damaged: says which layer or file, and how
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // Fetches all pieces of a cut, one by one, into files that are no checkpoint
  // before Keep().  Memory: a chunk of a piece.
  // Errors: ResourceExhausted  the disk is full; names the path
  //         Unavailable        no holder gave a layer; names it
  virtual void Fetch(CheckpointOrder order, Done<v1::Checkpoint> done) = 0;
  // Names the fetched checkpoint; it is on the disk when `done` is called.
  virtual void Keep(CheckpointId id, StatusDone done) = 0;
  // Removes the job's other checkpoints, kept or only fetched.
  virtual void Retain(JobId job, std::set<int64_t> steps) = 0;

  // Reads and checks the whole checkpoint.
  // Errors: InvalidArgument  it is of another model or optimizer than `wants`
  virtual void Check(CheckpointId id, StateLayout wants, StatusDone done) = 0;
  // A chunk of a layer's piece, without its cut: at most `limit` bytes from
  // `offset` on.  The first chunk's read checks the whole piece.
  virtual void ReadPiece(CheckpointId id, int layer, int64_t offset,
                         int64_t limit, Done<v1::PieceChunk> done) = 0;
  // A chunk of a safetensors file with the model's weights only.
  virtual void ReadWeights(CheckpointId id, int64_t offset, int64_t limit,
                           Done<v1::WeightsChunk> done) = 0;
};

}  // namespace paceline
