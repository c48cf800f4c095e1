// Parameters that two layers share: their gradients are added at the
// owner, and the value after an update goes to all who use it.
#pragma once

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "core/data/batch.h"
#include "worker/pipeline/link.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

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
  absl::Status AddGradients(const BatchInfo& batch);

  // Once all stages here have applied an update.  Waits for values of other
  // workers.
  // Errors: as AddGradients
  absl::Status ShareValues(const BatchInfo& batch);

 private:
  struct Place {
    Tie tie;
    int32_t boundary = 0;
    StageEngine* owner = nullptr;  // null: on another worker
    StageEngine* user = nullptr;
  };

  absl::Status Send(FrameKind kind, const Place& place, const BatchInfo& batch,
                    const Tensor& tensor);
  absl::StatusOr<Tensor> Receive(FrameKind kind, const Place& place,
                                 const BatchInfo& batch);

  std::vector<Place> places_;  // with an end here
  Link& link_;
};

}  // namespace paceline
