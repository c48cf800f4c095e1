// PredictionUpload hands predictions over while more of them are made.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/os/cancel_token.h"
#include "core/os/steady_wait.h"
#include "core/os/thread.h"
#include "worker/pipeline/predictions.h"

namespace paceline {

// Thread-safe.  Its thread "predictions" hands over all that waits, again and
// again, with a pause before each, since the coordinator syncs a disk each
// time.
class PredictionUpload final : public PredictionSink {
 public:
  // Returns when the parts are stored for good.
  using Upload = std::function<absl::Status(
      const std::vector<TensorPart>& parts, const CancelToken& cancel)>;
  // Called on the thread: all up to the mark is stored for good.
  using OnStored = std::function<void(const v1::PredictedMark& mark)>;

  PredictionUpload(Upload upload, OnStored on_stored,
                   absl::Duration pause = absl::Milliseconds(100));
  // Ends what is under way, and drops what waits.
  ~PredictionUpload() override;

  // Blocks while kMostWaitingBytes wait already.  Errors: those of Upload.
  absl::Status Add(std::vector<TensorPart> parts,
                   const std::optional<v1::PredictedMark>& mark) override;
  // Blocks until all that was added is stored.  Errors: those of Upload.
  absl::Status Finish();
  // Ends every wait.
  void Cancel(const absl::Status& why) { cancel_.Cancel(why); }

  static constexpr int64_t kMostWaitingBytes = int64_t{64} << 20;

 private:
  void Loop();

  const Upload upload_;
  const OnStored on_stored_;
  const absl::Duration pause_;
  CancelToken cancel_;

  SteadyMutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<TensorPart> parts_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::PredictedMark> marks_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // not stored yet
  absl::Status error_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace paceline
