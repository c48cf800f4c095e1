// A worker describes a TorchScript file with these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace paceline {

struct Parameter {
  // As timm or torchvision write it: "blocks.0.attn.qkv.weight".
  std::string name;
  Shape shape;
  bool trainable = true;      // false: a buffer, or frozen
  DType dtype = DType::kF32;  // buffers may have another
  bool frozen = false;        // a weight that this job leaves as it is

  // Forwards change it, as running statistics.
  bool is_buffer() const { return !trainable && !frozen; }
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

// A worker found this layer in a TorchScript file; core/model/description.h
// explains the numbers.
struct ScriptLayer {
  std::string name;  // of the child, "0"
  std::vector<Parameter> parameters;
  Shape output;
  double forward_flops = 0;  // a guess, from the parameters
  int64_t activation_bytes = 0;
  bool writes_input = false;  // computes in place

  friend bool operator==(const ScriptLayer&, const ScriptLayer&) = default;
};

struct ScriptModel {
  std::string sha256;  // of the file, lower hex
  Shape input;         // of the samples that it was tried with
  std::vector<ScriptLayer> layers;
  // The samples were tokens, each below this number; 0: float32, pictures.
  int64_t vocabulary = 0;

  friend bool operator==(const ScriptModel&, const ScriptModel&) = default;
};

// The name of the model that is a TorchScript file.
inline constexpr char kScriptModel[] = "script";

}  // namespace paceline
