#include "worker/torch/weight_stash.h"

#include <cstring>
#include <utility>

#include "ATen/ATen.h"
#include "core/base/errors.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

// Memory of their own, and the same gradient.
void Separate(Tensor& value, at::Tensor& variable) {
  value = Tensor::Allocate(value.dtype, value.shape);
  const at::Tensor gradient = variable.grad();
  variable = ToTorch(value);
  variable.set_requires_grad(true);
  variable.mutable_grad() = gradient;
}

}  // namespace

WeightStash::WeightStash(std::vector<TorchLayer>& layers, Products& products)
    : layers_(layers), products_(products), ring_(Current()) {}

WeightStash::Version WeightStash::Current() const {
  Version version;
  for (const TorchParameter& parameter : AllParameters(layers_)) {
    version.values.push_back(parameter.value);
    version.variables.push_back(parameter.variable);
  }
  return version;
}

absl::Status WeightStash::Use(int64_t version) {
  PACELINE_ASSIGN_OR_RETURN(std::vector<Version> gone, ring_.Use(version));
  Recycle(std::move(gone));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> WeightStash::Begin() {
  PACELINE_ASSIGN_OR_RETURN(const int64_t version, ring_.Acquire());
  Bind(ring_.at(version));
  return version;
}

void WeightStash::Release(int64_t version) { Recycle(ring_.Release(version)); }

void WeightStash::Bind(const Version& version) {
  absl::Span<const at::Tensor> variables = version.variables;
  for (TorchLayer& layer : layers_) {
    const size_t count = layer.parameters().size();
    layer.Bind(variables.subspan(0, count));
    variables.remove_prefix(count);
  }
}

void WeightStash::Update(const Write& write) {
  if (ring_.MayOverwrite()) {
    if (write != nullptr) write({});
    ring_.Overwrite();
    return;
  }
  if (write == nullptr) {
    Recycle(ring_.Push(ring_.newest_payload()));
    return;
  }
  Version next = Next();
  Adopt(next);
  write(ring_.newest_payload().values);
  Recycle(ring_.Push(std::move(next)));
}

WeightStash::Version WeightStash::Next() {
  const Version& newest = ring_.newest_payload();
  Version next = newest;
  const bool reuses = !spare_.empty();
  if (reuses) {
    next = std::move(spare_.back());
    spare_.pop_back();
  }
  size_t i = 0;
  for (const TorchParameter& parameter : AllParameters(layers_)) {
    const size_t at = i++;
    if (!newest.variables[at].requires_grad()) continue;
    const Tensor& old = newest.values[at];
    if (!reuses) Separate(next.values[at], next.variables[at]);
    if (parameter.updates()) continue;
    std::memcpy(next.values[at].data.get(), old.data.get(), old.bytes());
  }
  return next;
}

void WeightStash::Adopt(const Version& version) {
  size_t next = 0;
  for (TorchParameter& parameter : AllParameters(layers_)) {
    parameter.value = version.values[next];
    parameter.variable = version.variables[next++];
  }
  Bind(version);
}

// Memory that the versions of a skipped update share, or that a caller of
// Weights() has, is not written again.
void WeightStash::Recycle(std::vector<Version> gone) {
  if (gone.empty()) return;
  // The layers may still be bound to one of them.
  BindNewest();
  for (Version& version : gone) {
    bool alone = true;
    for (size_t i = 0; i < version.values.size(); ++i) {
      if (!version.variables[i].requires_grad()) continue;
      // One reference is `values`, the other the variable's storage.
      const at::Tensor& variable = version.variables[i];
      products_.Forget(variable);
      alone = alone && variable.use_count() == 1 &&
              variable.storage().use_count() == 1 &&
              version.values[i].data.use_count() == 2;
    }
    if (alone && spare_.empty()) spare_.push_back(std::move(version));
  }
}

int64_t WeightStash::bytes() const {
  int64_t bytes = 0;
  for (const TorchParameter& parameter : AllParameters(layers_)) {
    const int copies = parameter.variable.requires_grad() ? versions() : 1;
    bytes += copies * parameter.value.bytes();
  }
  return bytes;
}

}  // namespace paceline
