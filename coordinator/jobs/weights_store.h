// A WeightsStore assembles the result files of jobs, chunk by chunk.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/jobs/records.h"
#include "core/weights/safetensors_layout.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

struct SavedWeights {
  std::string path;
  std::string sha256;  // of the whole file, lower hex
  int64_t bytes = 0;
};

// Thread-safe; never blocks.  Requests run in the order of their calls; every
// `done` is called exactly once, from the store's thread.
class WeightsStore {
 public:
  virtual ~WeightsStore() = default;

  // Expects the weights of `fence.job` from now on, and reserves the file's
  // room.  Keeps the bytes that were synced before under this fence; of
  // predictions, under any fence of the job.  A layout without tensors means
  // "not known yet": Write() answers Unavailable until Open() is called with
  // the real one.
  // Errors: ResourceExhausted  the disk is full; names the path
  virtual void Open(const Fence& fence, SafetensorsLayout layout,
                    StatusDone done) = 0;

  // Errors:
  //   Aborted            no weights are expected under this fence
  //   InvalidArgument    unknown tensor, or a range outside of it
  //   ResourceExhausted  the disk is full; names the path
  virtual void Write(v1::WeightsPiece piece, StatusDone done) = 0;

  // All bytes written under `fence` are on the disk when `done` is called.
  virtual void Sync(const Fence& fence, StatusDone done) = 0;

  // Checks that the file is complete, syncs, hashes and names it.
  // Errors:
  //   FailedPrecondition  bytes are missing; names them
  virtual void Save(const Fence& fence, Done<SavedWeights> done) = 0;

  // Stops expecting weights of `job` and removes all its files.
  virtual void Forget(JobId job) = 0;

  // At most `limit` bytes of the saved file `name` from `offset` on.
  // Errors: NotFound  there is no such file.
  virtual void Read(JobId job, const std::string& name, int64_t offset,
                    int64_t limit, Done<v1::WeightsChunk> done) = 0;
};

}  // namespace paceline
