// Predicts the seconds of a layer that was never measured (another batch,
// another size, another model, another kind, another device) by a chain of
// log-linear models, each correcting the one above.
#pragma once

#include <compare>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

enum class LayerPass { kForward, kBackward };

// One pass through one layer for one batch on one device.
struct LayerWork {
  std::string kind;    // "linear", "conv2d", ...
  std::string dtype;   // "f32", "bf16"
  std::string device;  // what machines of the same speed have in common
  int threads = 1;     // >= 1
  LayerPass pass = LayerPass::kForward;
  double flops = 0;  // of the whole batch; finite, >= 0
  double bytes = 0;  // read and written; finite, >= 0

  auto operator<=>(const LayerWork&) const = default;
};

struct LayerRecord {
  LayerWork work;
  double seconds = 0;  // finite, > 0

  auto operator<=>(const LayerRecord&) const = default;
};

// From near to far.
enum class LayerLevel {
  kSameKey,     // kind, dtype, device, threads and pass were measured
  kSameKind,    // this kind on this device, some other way
  kSameDevice,  // other kinds on this device, and this kind on other devices
  kNewKind,     // other kinds on this device
  kAllDevices,  // other devices
};

// "key", "kind", "device", "new kind", "all".
absl::string_view LayerLevelName(LayerLevel level);

struct LayerPrediction {
  double seconds = 0;
  // Hold the true time in about kIntervalLevel (time_predictor.h) of cases.
  double low_seconds = 0;
  double high_seconds = 0;
  LayerLevel level = LayerLevel::kAllDevices;  // the nearest that has data
};

// log(seconds) = what work of this size is believed to take, plus what each
// LayerLevel adds by its name: all layers, this device, this kind on all
// devices, this kind on this device, and at last this key.  Each level is a
// ridge regression of what the others leave over: with few records it adds
// little, so that the levels further off go on deciding.  In the end the
// leftover of records of nearly the same size is added, since times have a
// floor and steps that no power law has.  Immutable.
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

  // Errors: InvalidArgument  as for records
  absl::StatusOr<LayerPrediction> Predict(const LayerWork& work) const;

 private:
  struct Model;

  explicit LayerPredictor(std::shared_ptr<const Model> model)
      : model_(std::move(model)) {}

  // Shared by the copies of this predictor, since it never changes.
  std::shared_ptr<const Model> model_;
};

}  // namespace paceline
