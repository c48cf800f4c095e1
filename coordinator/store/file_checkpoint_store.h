// The CheckpointStore over a folder:
//   <folder>/<job>/step-<step>/layers.safetensors   core/optim/state_layout.h
//                              manifest.json        v1::CheckpointManifest
// `step-<step>.partial` is being fetched.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "coordinator/checkpoint_store.h"
#include "core/base/task_loop.h"

namespace paceline {

// Thread-safe.  What is written belongs to its thread "checkpoints", what is
// read to "pieces": a fetch may take long.
class FileCheckpointStore final : public CheckpointStore {
 public:
  struct Reading;  // a checkpoint that is open

  // `fetcher` outlives this.
  FileCheckpointStore(std::string folder, PieceFetcher& fetcher);
  ~FileCheckpointStore() override;  // Stop()

  // Ends a fetch, does what else was asked for; what is asked for afterwards is
  // dropped.  Whoever a `done` refers to must live until this returns.
  void Stop();

  void Fetch(CheckpointOrder order,
             std::function<void(absl::StatusOr<v1::Checkpoint>)> done) override;
  void Keep(CheckpointId id, std::function<void(absl::Status)> done) override;
  void Retain(JobId job, std::set<int64_t> steps) override;
  void Check(CheckpointId id, StateLayout wants,
             std::function<void(absl::Status)> done) override;
  void ReadPiece(
      CheckpointId id, int layer, int64_t offset, int64_t limit,
      std::function<void(absl::StatusOr<v1::PieceChunk>)> done) override;
  void ReadWeights(
      CheckpointId id, int64_t offset, int64_t limit,
      std::function<void(absl::StatusOr<v1::WeightsChunk>)> done) override;

 private:
  static constexpr size_t kMostOpen = 4;

  std::string FolderOf(JobId job) const;
  std::string PathOf(CheckpointId id) const;
  // begins: a reader does; it gets what lies there now.
  absl::StatusOr<Reading*> Find(CheckpointId id, bool begins);

  const std::string folder_;
  PieceFetcher& fetcher_;
  std::map<std::string, std::unique_ptr<Reading>> open_;  // reads_'s, by path
  TaskLoop writes_;
  TaskLoop reads_;
};

}  // namespace paceline
