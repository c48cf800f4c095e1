// The results of an inference job: what its last stage, or a replica of it,
// gives, as the tensors of core/weights/safetensors_layout.h; and their upload,
// while more of them are made.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/tensor.h"
#include "core/data/batch.h"
#include "core/os/thread.h"
#include "core/schedule/route.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

// Takes predictions as they are made, on the compute thread.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  //   parts  share the tensors' memory; they lie at fixed places
  //   mark   all that it tells of is in these and earlier parts
  // Errors: those that end the run
  virtual absl::Status Add(std::vector<TensorPart> parts,
                           const std::optional<v1::PredictedMark>& mark) = 0;
};

// Lives on the compute thread.
class Predictions {
 public:
  //   keep_outputs  InferSpec::outputs
  //   turns         the micro-batches of this replica
  //   sink          outlives this
  //   skipped       SkippedRow()
  Predictions(bool keep_outputs, Turns turns, PredictionSink& sink,
              std::vector<uint8_t> skipped = {})
      : keep_outputs_(keep_outputs),
        turns_(std::move(turns)),
        sink_(sink),
        skipped_(std::move(skipped)) {}

  // Takes the predictions of a batch of one micro-batch; the batches of this
  // replica come in order.
  //   first    the first of these samples in the test set
  //   outputs  [n, ..., classes] float32
  //   labels   [n, ...] int64
  // Errors: InvalidArgument  they do not fit together, or to those before;
  //         else the sink's
  absl::Status Add(const BatchInfo& batch, int64_t first, const Tensor& outputs,
                   const Tensor& labels, const LossSums& sums);

  int64_t samples() const { return samples_; }
  // Classes that are kNoClass.
  int64_t without_class() const { return without_class_; }
  // In the log, where there are any.
  void WarnOfNoClass() const;

 private:
  // Nothing: others of this replica come before the next place of a mark.
  std::optional<v1::PredictedMark> MarkAfter(const BatchInfo& batch) const;

  const bool keep_outputs_;
  const Turns turns_;
  PredictionSink& sink_;
  const std::vector<uint8_t> skipped_;
  int64_t samples_ = 0;
  int64_t without_class_ = 0;
  int64_t not_finite_ = 0;  // samples
  LossSums sums_;
  Shape sample_;  // of outputs, without n
};

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
