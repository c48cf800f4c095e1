// Predicts the seconds of a layer that was never measured (another batch,
// another size, another model, another kind, another device) by a chain of
// log-linear models, each correcting the one above.
#pragma once

#include <array>
#include <map>
#include <string>
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
};

struct LayerRecord {
  LayerWork work;
  double seconds = 0;  // finite, > 0
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

// log(seconds) = what work of this size is believed to take, plus what all
// layers add, plus what this kind adds on all devices, plus what this device
// adds, plus what this kind on this device adds, plus what this key adds.  Each
// level is a ridge regression of what the others leave over: with few records
// it adds little, so that the levels above go on deciding.  At the last, the
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
  using Records = std::vector<const LayerRecord*>;

  // The terms of one layer time: constant, log FLOPs, log bytes, log threads,
  // log bytes of an element, is backward.
  using Terms = std::array<double, 6>;
  struct Sample {
    Terms terms;
    double log_seconds = 0;  // left over
  };

  // Minimises sum (log_seconds - c . t)^2 + sum penalty_i * c_i^2, where t are
  // the terms less their mean, the constant excepted: so a leftover that all
  // samples share goes to the constant, and not to slopes that run away
  // elsewhere.
  struct Ridge {
    // Penalties > 0, so that there is always one answer.
    Ridge(const std::vector<Sample>& samples, const Terms& penalties);

    double At(const Terms& terms) const;
    // t' (X'X + P)^-1 t: variance of At() over that of one sample.
    // Grows with the distance from what was seen.
    double Leverage(const Terms& terms) const;

    Terms center = {};
    Terms coefficients = {};
    std::array<Terms, 6> inverse = {};   // of X'X + P
    std::vector<Sample> leftovers = {};  // of keys only
  };
  struct Answer {
    double log_seconds = 0;
    LayerLevel level = LayerLevel::kAllDevices;
    // Factor >= 1 on the spread: grows with the distance from what was seen.
    double widening = 1;
  };

  explicit LayerPredictor(const Records& records);

  static Terms TermsOf(const LayerWork& work);
  static std::vector<double> SpreadsOf(const Records& records);
  void FitLevel(const Records& records, int level, const Terms& penalties);
  Answer Estimate(const LayerWork& work) const;

  std::array<std::map<std::string, Ridge>, 5> levels_;  // by NamesOf()
  std::vector<double> spreads_;  // by LayerLevel: |log error| in kIntervalLevel
};

}  // namespace paceline
