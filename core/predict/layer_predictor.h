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

// Of one layer time: constant, log FLOPs, log bytes, log threads, log bytes of
// an element, is backward.
constexpr int kLayerTerms = 6;
using LayerTerms = std::array<double, kLayerTerms>;

struct RidgeSample {
  LayerTerms terms = {};
  double value = 0;
};

// Minimises sum (value - c . t)^2 + sum penalty_i * c_i^2, where t are the
// terms less their mean, the constant excepted: so a leftover that all samples
// share goes to the constant, and not to slopes that run away elsewhere.
// Immutable.
class Ridge {
 public:
  // Penalties > 0, so that there is always one answer; without a sample all
  // coefficients are 0.  O(samples).
  static Ridge Fit(const std::vector<RidgeSample>& samples,
                   const LayerTerms& penalties);

  double At(const LayerTerms& terms) const;
  // t' (X'X + P)^-1 t: variance of At() over that of one sample.
  // Grows with the distance from what was seen.
  double Leverage(const LayerTerms& terms) const;

 private:
  LayerTerms Centered(const LayerTerms& terms) const;

  LayerTerms center_ = {};
  LayerTerms coefficients_ = {};
  // Cholesky factor of X'X + P, row by row below the diagonal.
  std::array<LayerTerms, kLayerTerms> factor_ = {};
};

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
constexpr int kLayerLevels = 5;

// "key", "kind", "device", "new kind", "all".
absl::string_view LayerLevelName(LayerLevel level);

// log(seconds) = what work of this size takes on all devices, with an offset
// a kind and an offset a device, plus what this kind adds on all devices, plus
// what this device adds, plus what this kind on this device adds, plus what
// this key adds.  Each level is a ridge
// regression of what the ones above leave over: with few records it adds
// little, so that the levels above go on deciding.  At the last, the leftover
// of records of nearly the same size is added, since times have a floor and
// steps that no power law has.  Immutable.
class LayerModel {
 public:
  explicit LayerModel(std::vector<const LayerRecord*> records);

  struct Answer {
    double log_seconds = 0;
    LayerLevel level = LayerLevel::kAllDevices;
    // Factor >= 1 on the spread: grows with the distance from what was seen.
    double widening = 1;
  };
  Answer Predict(const LayerWork& work) const;

 private:
  struct Leftover {
    LayerTerms terms = {};
    double value = 0;
  };
  struct Level {
    Ridge ridge;
    std::vector<Leftover> leftovers;  // kSameKey only
  };

  void FitCommon(const std::vector<const LayerRecord*>& records);
  void FitKinds(const std::vector<const LayerRecord*>& records);
  void FitLevel(const std::vector<const LayerRecord*>& records,
                LayerLevel level);
  double Common(const LayerWork& work) const;

  Ridge common_;
  std::map<std::string, double> kind_offsets_;
  std::map<std::string, double> device_offsets_;
  double median_device_offset_ = 0;
  std::map<std::string, Ridge> kinds_;
  std::map<std::string, Level> levels_;  // by NameAt
};

// What a level tells apart: the device (kSameDevice), the device and the kind
// (kSameKind), or the whole key; empty for the others.
std::string NameAt(const LayerWork& work, LayerLevel level);

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

  // Errors: InvalidArgument  as for records
  absl::StatusOr<LayerPrediction> Predict(const LayerWork& work) const;

 private:
  LayerPredictor(LayerModel model, std::vector<double> spreads)
      : model_(std::move(model)), spreads_(std::move(spreads)) {}

  LayerModel model_;
  std::vector<double> spreads_;  // by LayerLevel: |log error| in kIntervalLevel
};

}  // namespace paceline
