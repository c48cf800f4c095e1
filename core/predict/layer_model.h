// Layer times as a chain of log-linear models, each correcting the one above.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/predict/ridge.h"

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
  Answer Predict(const LayerWork& work,
                 std::optional<double> relative_speed = std::nullopt) const;

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

}  // namespace paceline
