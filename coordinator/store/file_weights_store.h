// The WeightsStore over a folder: <folder>/<job>/NAME.safetensors.  Each file
// is written chunk by chunk.
//
// While chunks come in, the job's folder has two files:
//   weights.partial    the file itself, header first, every tensor at its place
//   weights.progress   a line for the run ("ranges 3 1 1 87160": job, attempt,
//                      plan_version, bytes of the whole file; of predictions
//                      any attempt and plan: 0 0), then a line for
//                      each range of a tensor that is synced ("0 4096 fc.bias":
//                      first byte, one past the last)
// Save() gives the first its name, weights.safetensors (or
// predictions.safetensors, as the layout says), and deletes the second.  So a
// new coordinator process can go on where one was killed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/jobs/weights_store.h"
#include "coordinator/store/file_system.h"
#include "core/base/ids.h"
#include "core/os/thread.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// Thread-compatible; every call may wait for the disk.
//
// Errors of all methods:
//   ResourceExhausted  the disk is full; names the path
//   Internal           any other error of the file system; names the path
class WeightsFile {
 public:
  // Makes `folder` and reserves the whole file's room in it, or goes on with
  // the files of the same run.
  static absl::StatusOr<std::unique_ptr<WeightsFile>> Open(
      const std::string& folder, const Fence& fence, SafetensorsLayout layout);

  // Writes `data` at `offset_bytes` of `tensor`.  Repeating a write is
  // harmless.
  // Errors: InvalidArgument  unknown tensor, or a range outside of it
  absl::Status Write(const std::string& tensor, int64_t offset_bytes,
                     absl::string_view data);

  // All earlier writes are on the disk when this returns.
  absl::Status Sync();

  // Syncs, hashes and names the file.  Safe to repeat.
  // Errors: FailedPrecondition  bytes are missing; names them
  absl::StatusOr<SavedWeights> Save();

 private:
  struct Tensor {
    TensorPlace place;
    std::map<int64_t, int64_t> written;  // disjoint ranges: begin -> end
    std::map<int64_t, int64_t> noted;    // of these, those in the progress file

    bool whole() const {
      return place.bytes == 0 ||
             (written.size() == 1 && written.begin()->first == 0 &&
              written.begin()->second == place.bytes);
    }
  };

  WeightsFile(std::string folder, const Fence& fence, SafetensorsLayout layout);

  absl::Status Begin();
  absl::Status Resume();
  bool CanResume() const;
  absl::Status CheckWhole() const;
  std::string PathOf(absl::string_view name) const;

  const std::string folder_;
  const std::string name_;  // of the saved file
  const std::string run_line_;
  const std::string header_;
  const int64_t file_bytes_;
  std::map<std::string, Tensor> tensors_;
  OpenFile file_;  // none: the file has its name already
  OpenFile progress_;
  int64_t progress_bytes_ = 0;  // of whole lines
};

// Thread-safe; the files belong to its thread "weights".  Its callers bound its
// queue: each has one chunk under way.
class FileWeightsStore final : public WeightsStore {
 public:
  explicit FileWeightsStore(std::string folder);
  ~FileWeightsStore() override { Stop(); }

  // Runs the pending requests; later ones are dropped.  Objects that a `done`
  // refers to must live until this returns.
  void Stop() { loop_.Stop(); }

  void Open(const Fence& fence, SafetensorsLayout layout,
            StatusDone done) override;
  void Write(v1::WeightsPiece piece, StatusDone done) override;
  void Sync(const Fence& fence, StatusDone done) override;
  void Save(const Fence& fence, Done<SavedWeights> done) override;
  void Forget(JobId job) override;
  void Read(JobId job, const std::string& name, int64_t offset, int64_t limit,
            Done<v1::WeightsChunk> done) override;

 private:
  struct Expected {
    Fence fence;
    // Or the error of opening it, which Write() returns.
    absl::StatusOr<std::unique_ptr<WeightsFile>> file;
  };

  std::string FolderOf(JobId job) const;
  absl::StatusOr<WeightsFile*> Find(const Fence& fence);
  static absl::StatusOr<v1::WeightsChunk> ReadPart(const std::string& path,
                                                   int64_t offset,
                                                   int64_t limit);

  const std::string folder_;
  std::map<JobId, Expected> expected_;  // the loop's
  TaskLoop loop_;
};

}  // namespace paceline
