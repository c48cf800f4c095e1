#include "worker/pipeline/prediction_upload.h"

#include <utility>

namespace paceline {

PredictionUpload::PredictionUpload(Upload upload, OnStored on_stored,
                                   absl::Duration pause)
    : upload_(std::move(upload)),
      on_stored_(std::move(on_stored)),
      pause_(pause),
      thread_("predictions", [this] { Loop(); }) {}

PredictionUpload::~PredictionUpload() {
  Cancel(absl::CancelledError("the run has ended"));
  SteadyLock lock(&mutex_);
  stopping_ = true;
}

absl::Status PredictionUpload::Add(
    std::vector<TensorPart> parts,
    const std::optional<v1::PredictedMark>& mark) {
  const auto has_room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !error_.ok() || waiting_bytes_ < kMostWaitingBytes;
  };
  SteadyLock lock(&mutex_);
  mutex_.Await(absl::Condition(&has_room));
  for (TensorPart& part : parts) {
    waiting_bytes_ += part.tensor.bytes();
    parts_.push_back(std::move(part));
  }
  if (mark.has_value()) marks_.push_back(*mark);
  return error_;
}

absl::Status PredictionUpload::Finish() {
  const auto is_done = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !error_.ok() || waiting_bytes_ == 0;
  };
  SteadyLock lock(&mutex_);
  finishing_ = true;
  mutex_.Await(absl::Condition(&is_done));
  return error_;
}

void PredictionUpload::Loop() {
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !parts_.empty();
  };
  const auto is_urgent = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || finishing_ || waiting_bytes_ >= kMostWaitingBytes / 2;
  };
  for (absl::Status status; status.ok();) {
    std::vector<TensorPart> parts;
    std::vector<v1::PredictedMark> marks;
    int64_t bytes = 0;
    {
      SteadyLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      mutex_.AwaitFor(absl::Condition(&is_urgent), pause_);
      if (stopping_) return;
      parts.swap(parts_);
      marks.swap(marks_);
      bytes = waiting_bytes_;
    }
    status = upload_(parts, cancel_);
    if (status.ok()) {
      for (const v1::PredictedMark& mark : marks) on_stored_(mark);
    }
    SteadyLock lock(&mutex_);
    waiting_bytes_ -= bytes;
    error_ = status;
  }
}

}  // namespace paceline
