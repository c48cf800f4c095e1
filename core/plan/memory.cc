#include "core/plan/memory.h"

#include <cstddef>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/optim/optimizer.h"
#include "core/plan/plan.h"

namespace paceline {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// A hostile spec must not wrap around into a number that fits.
int64_t Add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}

int64_t Multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : product;
}

// For one sample: an activation and a gradient at each boundary of `range`.
int64_t BoundaryBytes(const ModelDescription& model, const LayerRange& range) {
  constexpr int64_t kFramesOfABoundary = 2;
  int64_t bytes = 0;
  if (range.first > 0) {
    bytes = Add(bytes, model.layers[range.first - 1].output_bytes);
  }
  if (range.last < static_cast<int>(model.layers.size())) {
    bytes = Add(bytes, model.layers[range.last - 1].output_bytes);
  }
  return Multiply(kFramesOfABoundary, bytes);
}

}  // namespace

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  size_t unit = 0;
  int64_t whole = bytes;
  int64_t rest = 0;
  for (; whole >= 1024; ++unit) {
    rest = whole % 1024;
    whole /= 1024;
  }
  return absl::StrCat(whole, ".", rest * 10 / 1024, " ", kUnits[unit - 1]);
}

std::vector<StageKeeps> KeepsOfStages(const ScheduleBounds& bounds) {
  std::vector<StageKeeps> keeps;
  for (size_t s = 0; s < bounds.kept_micro_batches.size(); ++s) {
    keeps.push_back({bounds.kept_micro_batches[s],
                     bounds.split_micro_batches[s], bounds.kept_versions[s]});
  }
  return keeps;
}

int64_t EstimateBytes(const ModelDescription& model, const TrainSpec& train,
                      const std::vector<LayerRange>& ranges,
                      const std::vector<StageKeeps>& keeps) {
  PACELINE_CHECK(
      ranges.size() == keeps.size(),
      absl::StrCat("ranges=", ranges.size(), " keeps=", keeps.size()));
  int64_t total = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& [micro_batches, split, versions] = keeps[i];
    // The parameter itself, its summed gradient, the optimizer's state.
    const int64_t copies = 1 + StateSlots(train.optimizer) + versions;
    int64_t sample_bytes = BoundaryBytes(model, ranges[i]);
    for (int layer = ranges[i].first; layer < ranges[i].last; ++layer) {
      const Layer& described = model.layers[layer];
      total = Add(total, Multiply(copies, described.parameter_bytes));
      // A value a version, and the gradient.
      total = Add(total, Multiply(1 + versions, described.borrowed_bytes));
      sample_bytes = Add(sample_bytes,
                         Multiply(micro_batches, described.activation_bytes));
      sample_bytes = Add(sample_bytes, Multiply(split, described.output_bytes));
    }
    total = Add(total, Multiply(train.micro_batch, sample_bytes));
  }
  return total;
}

}  // namespace paceline
