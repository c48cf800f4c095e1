// Workers of a pipeline exchange gradients and values once a step in training.
// The replicas of a stage all get the sum of their gradients (ReplicaExchange).
// The owner of parameters that two layers share adds up the gradients, and all
// users get the value after an update (TieExchange).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/data/batch.h"
#include "worker/pipeline/link.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

// A replica among those of its stage.
struct ReplicaPlace {
  int32_t boundary = 0;  // over which they reach one another (EndsOf)
  int replica = 0;
  int replicas = 1;
  // This one learns first what the next batch is.
  int leader = 0;
};

// Replicas add these up beside the gradient.
struct ReplicaCounts {
  LossSums losses;     // on the last stage
  int64_t labels = 0;  // of the samples in the gradient
};

// The most bytes of a frame between `replicas` with `values` in their
// gradients.
int64_t ReplicaFrameBytes(int64_t values, int replicas);

// Lives on the compute thread.  Replica i adds up the i-th of equal parts of
// the gradient, in the order of the replicas, and sends the sum to the others:
// all of them have its bytes, and none has more work than another.  Replicas
// are fixed: all of them take part in each batch, also those without a
// micro-batch in it.
class ReplicaExchange {
 public:
  // Both outlive this.
  ReplicaExchange(const ReplicaPlace& place, StageEngine& engine, Link& link)
      : place_(place), engine_(engine), link_(link) {}

  bool leads() const { return place_.replica == place_.leader; }
  // The leader tells the others of a batch, who wait for it.
  absl::Status Tell(const BatchInfo& batch);
  absl::StatusOr<BatchInfo> Await(int64_t ordinal);

  // After the last backward of a step: the engine's gradient and `counts`
  // become those of all replicas.  Returns a hash of that gradient and of the
  // engine's state, which all replicas must have.
  // Errors: those of the link; InvalidArgument  a frame of another size
  absl::StatusOr<uint64_t> Sum(const BatchInfo& batch, ReplicaCounts& counts);
  // The same of an evaluation, which has no gradient.
  absl::Status SumCounts(const BatchInfo& batch, ReplicaCounts& counts);

 private:
  using Values = absl::Span<float>;

  absl::Status SendParts(const BatchInfo& batch, Values gradient,
                         const ReplicaCounts& counts);
  absl::Status AddParts(const BatchInfo& batch, Values gradient,
                        ReplicaCounts& counts);
  // Part `index` of the gradient.
  Values PartOf(Values gradient, int index) const;
  absl::Status Send(ReplicaFrame what, const BatchInfo& batch, int receiver,
                    const ReplicaCounts* counts, Values values);
  absl::StatusOr<Tensor> Receive(ReplicaFrame what, const BatchInfo& batch,
                                 int sender, size_t bytes);

  const ReplicaPlace place_;
  StageEngine& engine_;
  Link& link_;
};

// Lives on the compute thread.  Does the same whether owner and user are on one
// stage, on two of one worker, or on two workers, so that the bytes are too: a
// user sums its gradients apart, and the owner adds them to its own once a
// step, in the order of the users' layers.
class TieExchange {
 public:
  // ties: of the whole run; those of other workers are passed over.
  // engines: of this worker, by stage; they and `link` outlive this.
  TieExchange(const std::vector<Tie>& ties, int stages,
              const std::map<int, StageEngine*>& engines, Link& link);

  // Whether a layer of `stage`, one of this worker's, owns a shared parameter:
  // it may report only after AddGradients().
  bool Owns(int stage) const;

  // Once all stages here have the sums of their gradients.  Waits for those of
  // other workers.
  // Errors: those of the link and of StageEngine::Tied
  absl::Status AddGradients(const BatchInfo& batch) {
    return Cross(batch, /*from_owner=*/false);
  }

  // Once all stages here have applied an update.  Waits for values of other
  // workers.
  // Errors: as AddGradients
  absl::Status ShareValues(const BatchInfo& batch) {
    return Cross(batch, /*from_owner=*/true);
  }

 private:
  struct Place {
    Tie tie;
    int32_t boundary = 0;
    StageEngine* owner = nullptr;  // null: on another worker
    StageEngine* user = nullptr;
  };

  // Brings the gradients to the owners, or the owners' values to the users.
  absl::Status Cross(const BatchInfo& batch, bool from_owner);
  absl::StatusOr<Tensor> Receive(FrameKind kind, const Place& place,
                                 const BatchInfo& batch);

  std::vector<Place> places_;  // with an end here
  Link& link_;
};

}  // namespace paceline
