#include "worker/stage_engine.h"

#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {
namespace {

std::string Describe(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype)), "[",
                      absl::StrJoin(tensor.shape, ", "), "]");
}

}  // namespace

absl::Status OverwriteWeights(const std::vector<NamedTensor>& weights,
                              const std::vector<NamedTensor>& own) {
  std::map<std::string, const Tensor*> targets;
  for (const NamedTensor& named : own) targets[named.name] = &named.tensor;
  for (const NamedTensor& named : weights) {
    const auto target = targets.find(named.name);
    if (target == targets.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("this stage has no weights named ", named.name));
    }
    const Tensor& tensor = named.tensor;
    if (tensor.dtype != target->second->dtype ||
        tensor.shape != target->second->shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights ", named.name, ": got ", Describe(tensor),
                       ", need ", Describe(*target->second)));
    }
  }
  for (const NamedTensor& named : weights) {
    std::memcpy(targets[named.name]->data.get(), named.tensor.data.get(),
                named.tensor.bytes());
  }
  return absl::OkStatus();
}

}  // namespace paceline
