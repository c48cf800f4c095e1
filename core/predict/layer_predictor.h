// Predicts the seconds of a layer that was never measured: another batch,
// another size, another model, another kind, another device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/predict/layer_model.h"

namespace paceline {

struct LayerPrediction {
  double seconds = 0;
  // Hold the true time in about kIntervalLevel (interval.h) of cases.
  double low_seconds = 0;
  double high_seconds = 0;
  LayerLevel level = LayerLevel::kAllDevices;  // the nearest that has data
};

// Immutable.
class LayerPredictor {
 public:
  // Records in any order; the order does not matter.  Besides fitting, it
  // leaves out records, keys, kinds and devices in turn and predicts them: how
  // far off it then is at each level makes the intervals.
  // O(records * left out groups), of which there are at most about 100.
  // Errors: InvalidArgument  no record, or one with seconds that are not
  //                          finite and positive, FLOPs or bytes negative or
  //                          not finite, threads below 1
  static absl::StatusOr<LayerPredictor> Fit(std::vector<LayerRecord> records);

  // `relative_speed`: of a device without records, over the typical (median)
  // one of those with records; ignored for a device that has records.
  // Errors: InvalidArgument  as for records
  absl::StatusOr<LayerPrediction> Predict(
      const LayerWork& work,
      std::optional<double> relative_speed = std::nullopt) const;

 private:
  LayerPredictor(LayerModel model, std::vector<double> spreads)
      : model_(std::move(model)), spreads_(std::move(spreads)) {}

  LayerModel model_;
  std::vector<double> spreads_;  // by LayerLevel: |log error| in kIntervalLevel
};

}  // namespace paceline
