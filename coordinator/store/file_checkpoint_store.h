// The CheckpointStore over a folder:
//   <folder>/<job>/step-<step>/layers.safetensors   core/optim/state_layout.h
//                              manifest.json        v1::CheckpointManifest
// `step-<step>.partial` is being fetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "coordinator/checkpoint_store.h"
#include "core/base/steady_wait.h"
#include "core/base/task_loop.h"

namespace paceline {

// Thread-safe.  What is written belongs to its thread "checkpoints", what is
// read to "pieces": a fetch may take long.
class FileCheckpointStore final : public CheckpointStore {
 public:
  struct Reading;  // a checkpoint that is open
  // More than read at a time, as a rule; the one used longest ago is closed.
  static constexpr size_t kMostOpen = 16;
  // A checkpoint of which some has come fails when no more comes for so long.
  static constexpr absl::Duration kPatience = absl::Minutes(2);

  // `fetcher` outlives this.
  FileCheckpointStore(std::string folder, PieceFetcher& fetcher,
                      absl::Duration patience = kPatience);
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
  std::string FolderOf(JobId job) const;
  std::string PathOf(CheckpointId id) const;
  // begins: a reader does; it gets what lies there now.
  absl::StatusOr<Reading*> Find(CheckpointId id, bool begins);

  const std::string folder_;
  const absl::Duration patience_;
  PieceFetcher& fetcher_;
  SteadyNotification stopped_;
  // reads_'s.
  std::map<std::string, std::unique_ptr<Reading>> open_;  // by path
  int64_t uses_ = 0;
  TaskLoop writes_;
  TaskLoop reads_;
};

}  // namespace paceline
