// A TorchScript file whose root is a Sequential: its children are layers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/statusor.h"
#include "torch/script.h"

namespace paceline {

struct Script {
  std::string sha256;  // of the file, lower hex
  std::vector<std::pair<std::string, torch::jit::Module>> children;
};

// Reads `path` whole, once.
//
// Errors: as ReadScript() of engine.h, but for what trying them shows.
absl::StatusOr<Script> LoadScript(const std::string& path);

// A parameter or buffer of a child, by the path in it ("0.weight").
struct ScriptTensor {
  std::string name;
  at::Tensor tensor;
  bool trainable = false;
};

// Parameters first, then buffers.
std::vector<ScriptTensor> TensorsOf(const torch::jit::Module& child);

// Gives the child another tensor of that name; the type stays.
void SetTensor(torch::jit::Module child, const std::string& name,
               const at::Tensor& tensor);

// As `child` is written, operation by operation: the executor's own rewriting
// would compute the first calls otherwise than later ones.
// Throws c10::Error.
at::Tensor RunScript(torch::jit::Module& child, const at::Tensor& input);

}  // namespace paceline
