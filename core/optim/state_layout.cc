#include "core/optim/state_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/job/made_with.h"
#include "core/optim/optimizer.h"

namespace paceline {
namespace {

std::string TensorText(const TensorPlace& place) {
  return absl::StrCat(place.name, " of ", DTypeName(place.dtype), "[",
                      absl::StrJoin(place.shape, ","), "]");
}

}  // namespace

absl::StatusOr<StateLayout> LayOutState(const ModelDescription& model,
                                        const OptimizerSpec& optimizer) {
  std::vector<TensorPlace> tensors;
  std::vector<size_t> ends;  // [layers]: one past its last tensor
  for (size_t i = 0; i < model.layers.size(); ++i) {
    for (const Parameter& parameter : model.layers[i].parameters) {
      tensors.push_back({parameter.name, parameter.dtype, parameter.shape});
      const int slots = parameter.trainable ? StateSlots(optimizer) : 0;
      for (int slot = 0; slot < slots; ++slot) {
        tensors.push_back({absl::StrCat(parameter.name, ".optimizer.", slot),
                           parameter.dtype, parameter.shape});
      }
    }
    for (const Parameter& parameter : model.layers[i].borrowed) {
      tensors.push_back(
          {absl::StrCat("layer.", i, ".borrowed.", parameter.name),
           parameter.dtype, parameter.shape});
    }
    ends.push_back(tensors.size());
  }
  StateLayout layout;
  PACELINE_ASSIGN_OR_RETURN(
      layout.file,
      LayOut(std::move(tensors), {{"format", "pt"}, {"model", model.name}}));
  layout.made_with = model.made_with;
  int64_t offset = static_cast<int64_t>(layout.file.header.size());
  for (const size_t end : ends) {
    const int64_t next = end == 0 ? offset
                                  : layout.file.tensors[end - 1].offset +
                                        layout.file.tensors[end - 1].bytes;
    layout.layers.push_back({offset, next - offset});
    offset = next;
  }
  return layout;
}

absl::Status CheckSameState(const StateLayout& has, const StateLayout& wants) {
  if (has.layers.size() != wants.layers.size()) {
    return InvalidArgument("it has ", has.layers.size(),
                           " layers, the job's model has ",
                           wants.layers.size());
  }
  const std::vector<TensorPlace>& a = has.file.tensors;
  const std::vector<TensorPlace>& b = wants.file.tensors;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string left = i < a.size() ? TensorText(a[i]) : "nothing";
    const std::string right = i < b.size() ? TensorText(b[i]) : "nothing";
    if (left == right) continue;
    return InvalidArgument("it has ", left, " where the job's model has ",
                           right);
  }
  std::vector<std::string> said_by_client;
  return CheckMadeWith(has.made_with, wants.made_with, /*reset_head=*/false,
                       said_by_client);
}

}  // namespace paceline
