// A CheckpointStore keeps the states of all layers of jobs, as they were after
// some step, on the coordinator's disk.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/ids.h"
#include "core/optim/state_layout.h"
#include "core/recover/cut.h"
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
  v1::CheckpointManifest manifest;  // but for the file's numbers
  StateLayout layout;
  std::vector<std::vector<PieceHolder>> holders;  // [layers]
};

// A piece, and who is asked for it.
struct HeldPiece {
  PieceHolder holder;
  JobId job;
  Piece piece;
  int64_t bytes = 0;
  int64_t offset = 0;  // bytes that are there already
};

// Gets pieces from workers.  Thread-safe.
class PieceFetcher {
 public:
  virtual ~PieceFetcher() = default;

  // Gives the bytes of a piece to `take`, in order, from ask.offset on. Blocks;
  // as long as some come.  The answer: the piece's checksum as the holder says
  // it. Errors: those of Stage.Pieces, of `take`, and
  //         DeadlineExceeded too little came for a while
  //         InvalidArgument  what came is not the piece
  //         Cancelled        after Cancel()
  virtual absl::StatusOr<uint64_t> Fetch(
      const HeldPiece& ask,
      absl::FunctionRef<absl::Status(absl::string_view)> take) = 0;
  // Ends what is under way, and what comes.
  virtual void Cancel() = 0;
};

// Thread-safe; never blocks.  Every `done` is called exactly once, from a
// thread of the store.
//
// Errors of what reads:
//   NotFound  there is no such checkpoint
//   DataLoss  it is damaged: says which layer or file, and how
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // Fetches all pieces of a cut, one after the other, into files that count for
  // nothing before Keep().  Memory: a chunk of a piece.
  // Errors: ResourceExhausted  the disk is full; names the path
  //         Unavailable        no holder of a layer gave it; says which
  virtual void Fetch(
      CheckpointOrder order,
      std::function<void(absl::StatusOr<v1::Checkpoint>)> done) = 0;
  // Gives what was fetched its name; it is on the disk when this is done.
  virtual void Keep(CheckpointId id,
                    std::function<void(absl::Status)> done) = 0;
  // Removes all that there is of the job but these, kept or only fetched.
  virtual void Retain(JobId job, std::set<int64_t> steps) = 0;

  // Reads all of it.
  // Errors: InvalidArgument  it is of another model or optimizer than `wants`
  virtual void Check(CheckpointId id, StateLayout wants,
                     std::function<void(absl::Status)> done) = 0;
  // A chunk of a layer's piece, without its cut: at most `limit` bytes from
  // `offset` on.  With the first one the whole piece is checked.
  virtual void ReadPiece(
      CheckpointId id, int layer, int64_t offset, int64_t limit,
      std::function<void(absl::StatusOr<v1::PieceChunk>)> done) = 0;
  // A chunk of the safetensors file that has the model's weights only.
  virtual void ReadWeights(
      CheckpointId id, int64_t offset, int64_t limit,
      std::function<void(absl::StatusOr<v1::WeightsChunk>)> done) = 0;
};

}  // namespace paceline
