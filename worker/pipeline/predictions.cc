#include "worker/pipeline/predictions.h"

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"
#include "core/data/data_sets.h"
#include "core/obs/log.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

namespace {

// Replicas pass marks at different times, and the newest that all have passed
// counts: it must not be gone from a report when the slowest one passes it.
constexpr int64_t kLeastBetweenMarks = 8;

}  // namespace

void Predictions::WarnOfNoClass() const {
  if (without_class_ == 0) return;
  Log(LogLevel::kWarn,
      "predictions that are no class: NaN in the outputs, of a picture that "
      "cannot be read or of the model",
      {{"predictions", without_class_}, {"samples", samples_}});
}

absl::Status Predictions::Add(const BatchInfo& batch, int64_t first,
                              const Tensor& outputs, const Tensor& labels,
                              const LossSums& sums) {
  const bool fits =
      outputs.dtype == DType::kF32 && labels.dtype == DType::kI64 &&
      outputs.shape.size() >= 2 && outputs.shape.back() > 0 &&
      outputs.shape.front() > 0 && first >= 0 &&
      Shape(outputs.shape.begin(), outputs.shape.end() - 1) == labels.shape;
  const Shape sample =
      fits ? Shape(outputs.shape.begin() + 1, outputs.shape.end()) : Shape();
  if (!fits || (samples_ > 0 && sample != sample_)) {
    return InvalidArgument(
        "predictions of shape ", ShapeText(outputs.shape), " with labels ",
        ShapeText(labels.shape),
        samples_ > 0 ? " after samples of " + ShapeText(sample_) : "");
  }
  sample_ = sample;
  samples_ += outputs.shape.front();
  const auto width = static_cast<int64_t>(outputs.shape.back());
  Tensor classes = Tensor::Allocate(DType::kI64, labels.shape);
  const absl::Span<int64_t> highest = classes.As<int64_t>();
  const absl::Span<const float> values = outputs.As<float>();
  const size_t rows_each = highest.size() / labels.shape.front();
  bool sound = true;  // this sample, so far
  for (size_t row = 0; row < highest.size(); ++row) {
    const auto begin = values.begin() + static_cast<int64_t>(row) * width;
    const bool is_known = std::none_of(
        begin, begin + width, [](float value) { return std::isnan(value); });
    highest[row] =
        is_known ? std::max_element(begin, begin + width) - begin : kNoClass;
    without_class_ += is_known ? 0 : 1;
    // Some outputs may be -infinity: a class that cannot be.
    sound = sound && is_known && std::isfinite(*(begin + highest[row]));
    if ((row + 1) % rows_each != 0) continue;
    not_finite_ += sound ? 0 : 1;
    sound = true;
  }
  sums_.Add(sums);
  std::vector<TensorPart> parts;
  const auto add = [&](const char* name, const Tensor& tensor) {
    const int64_t sample_bytes = tensor.bytes() / tensor.shape.front();
    parts.push_back({name, tensor, first * sample_bytes});
  };
  add(kPredictedClasses, classes);
  // A label for each token of a text is the text itself.
  Tensor shown = labels;
  if (labels.shape.size() > 1) {
    shown = Tensor::Allocate(DType::kI64, labels.shape);
    const absl::Span<int64_t> none = shown.As<int64_t>();
    std::fill(none.begin(), none.end(), kNoLabel);
  }
  add(kPredictedLabels, shown);
  if (keep_outputs_) add(kPredictedOutputs, outputs);
  if (!skipped_.empty()) {
    Tensor rows = Tensor::Allocate(
        DType::kU8,
        {labels.shape.front(), static_cast<int64_t>(skipped_.size())});
    uint8_t* row = rows.data.get();
    for (int64_t i = 0; i < labels.shape.front(); ++i) {
      row = std::copy(skipped_.begin(), skipped_.end(), row);
    }
    add(kPredictedSkipped, rows);
  }
  return sink_.Add(std::move(parts), MarkAfter(batch));
}

// Marks are at the same places for all replicas, each of which has a turn in
// every period of the route.
std::optional<v1::PredictedMark> Predictions::MarkAfter(
    const BatchInfo& batch) const {
  const int64_t period = turns_.route.period();
  const int64_t spacing =
      period == 0 ? 1 : (kLeastBetweenMarks + period - 1) / period * period;
  const int64_t next = turns_.Next(batch.ordinal + 1);
  const int64_t through = next >= batch.total_micro_batches
                              ? batch.total_micro_batches
                              : next / spacing * spacing;
  if (through <= batch.ordinal) return std::nullopt;
  v1::PredictedMark mark;
  mark.set_through(through);
  mark.set_labels(sums_.samples);
  mark.set_correct(sums_.correct);
  mark.set_loss(sums_.loss);
  mark.set_not_finite(not_finite_);
  return mark;
}

PredictionUpload::PredictionUpload(Upload upload, OnStored on_stored,
                                   absl::Duration pause)
    : upload_(std::move(upload)),
      on_stored_(std::move(on_stored)),
      pause_(pause),
      thread_("predictions", [this] { Loop(); }) {}

PredictionUpload::~PredictionUpload() {
  Cancel(Cancelled("the run has ended"));
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
