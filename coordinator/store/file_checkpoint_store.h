// The CheckpointStore over a folder:
//   <folder>/<job>/step-<step>/layers.safetensors   LayOutState()
//                              manifest.json        v1::CheckpointManifest
// `step-<step>.partial` holds a checkpoint that is being fetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "coordinator/jobs/checkpoint_store.h"
#include "core/os/thread.h"

namespace paceline {

// Thread-safe.  Its thread "checkpoints" writes and its thread "pieces" reads,
// since a fetch may take long.
class FileCheckpointStore final : public CheckpointStore {
 public:
  struct Reading;  // a checkpoint that is open
  // Usually more than are read at a time; the least recently used is closed.
  static constexpr size_t kMostOpen = 16;
  // A fetch that has begun fails when no bytes come for this long.
  static constexpr absl::Duration kPatience = absl::Minutes(2);

  // `fetcher` outlives this.
  FileCheckpointStore(std::string folder, PieceFetcher& fetcher,
                      absl::Duration patience = kPatience);
  ~FileCheckpointStore() override;  // Stop()

  // Ends a fetch and runs the other requests; later requests are dropped.
  // Objects that a `done` refers to must live until this returns.
  void Stop();

  void Fetch(CheckpointOrder order, Done<v1::Checkpoint> done) override;
  void Keep(CheckpointId id, StatusDone done) override;
  void Retain(JobId job, std::set<int64_t> steps) override;
  void Check(CheckpointId id, StateLayout wants, StatusDone done) override;
  void ReadPiece(CheckpointId id, int layer, int64_t offset, int64_t limit,
                 Done<v1::PieceChunk> done) override;
  void ReadWeights(CheckpointId id, int64_t offset, int64_t limit,
                   Done<v1::WeightsChunk> done) override;

 private:
  std::string FolderOf(JobId job) const;
  std::string PathOf(CheckpointId id) const;
  // begins: a reader starts, and gets the files that are there now.
  absl::StatusOr<Reading*> Find(CheckpointId id, bool begins);

  const std::string folder_;
  const absl::Duration patience_;
  PieceFetcher& fetcher_;
  SteadyNotification stopped_;
  // Used on reads_ only.
  std::map<std::string, std::unique_ptr<Reading>> open_;  // by path
  int64_t uses_ = 0;
  TaskLoop writes_;
  TaskLoop reads_;
};

}  // namespace paceline
