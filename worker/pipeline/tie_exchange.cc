#include "worker/pipeline/tie_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/optim/optimizer.h"

namespace paceline {
namespace {

// A receiver may look at the tensor after the engine has changed its own.
Tensor CopyOf(const Tensor& tensor) {
  Tensor copy = Tensor::Allocate(tensor.dtype, tensor.shape);
  std::memcpy(copy.data.get(), tensor.data.get(), tensor.bytes());
  return copy;
}

}  // namespace

TieExchange::TieExchange(const std::vector<Tie>& ties, int stages,
                         const std::map<int, StageEngine*>& engines, Link& link)
    : link_(link) {
  const auto engine_of = [&](int stage) -> StageEngine* {
    const auto found = engines.find(stage);
    return found == engines.end() ? nullptr : found->second;
  };
  int32_t boundary = stages - 1;
  for (const Tie& tie : ties) {
    const Place place{tie, boundary++, engine_of(tie.owner_stage),
                      engine_of(tie.user_stage)};
    if (place.owner != nullptr || place.user != nullptr) {
      places_.push_back(place);
    }
  }
}

bool TieExchange::Owns(int stage) const {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.tie.owner_stage == stage;
  });
}

absl::Status TieExchange::AddGradients(const BatchInfo& batch) {
  for (const Place& place : places_) {
    if (place.user == nullptr || place.owner != nullptr) continue;
    PACELINE_ASSIGN_OR_RETURN(const TiedTensors user,
                              place.user->Tied(place.tie.parameter, false));
    PACELINE_RETURN_IF_ERROR(
        Send(FrameKind::kTiedGradient, place, batch, CopyOf(user.gradient)));
  }
  for (const Place& place : places_) {
    if (place.owner == nullptr) continue;
    PACELINE_ASSIGN_OR_RETURN(TiedTensors owner,
                              place.owner->Tied(place.tie.parameter, true));
    Tensor gradient;
    if (place.user == nullptr) {
      PACELINE_ASSIGN_OR_RETURN(
          gradient, Receive(FrameKind::kTiedGradient, place, batch));
    } else {
      PACELINE_ASSIGN_OR_RETURN(const TiedTensors user,
                                place.user->Tied(place.tie.parameter, false));
      gradient = user.gradient;
    }
    const Tensor& read = gradient;
    AddTo(owner.gradient.As<float>(), read.As<float>());
  }
  return absl::OkStatus();
}

absl::Status TieExchange::ShareValues(const BatchInfo& batch) {
  for (const Place& place : places_) {
    if (place.owner == nullptr || place.user != nullptr) continue;
    PACELINE_ASSIGN_OR_RETURN(const TiedTensors owner,
                              place.owner->Tied(place.tie.parameter, true));
    PACELINE_RETURN_IF_ERROR(
        Send(FrameKind::kTiedValue, place, batch, CopyOf(owner.value)));
  }
  for (const Place& place : places_) {
    if (place.user == nullptr) continue;
    Tensor value;
    if (place.owner == nullptr) {
      PACELINE_ASSIGN_OR_RETURN(value,
                                Receive(FrameKind::kTiedValue, place, batch));
    } else {
      PACELINE_ASSIGN_OR_RETURN(const TiedTensors owner,
                                place.owner->Tied(place.tie.parameter, true));
      value = owner.value;
    }
    PACELINE_ASSIGN_OR_RETURN(const TiedTensors user,
                              place.user->Tied(place.tie.parameter, false));
    std::memcpy(user.value.data.get(), value.data.get(), value.bytes());
  }
  return absl::OkStatus();
}

absl::Status TieExchange::Send(FrameKind kind, const Place& place,
                               const BatchInfo& batch, const Tensor& tensor) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.boundary = place.boundary;
  frame.header.batch = batch;
  frame.tensors = {tensor};
  return link_.Send(std::move(frame));
}

absl::StatusOr<Tensor> TieExchange::Receive(FrameKind kind, const Place& place,
                                            const BatchInfo& batch) {
  PACELINE_ASSIGN_OR_RETURN(
      Frame frame, link_.Receive({kind, place.boundary, batch.ordinal, 0}));
  if (frame.header.batch != batch) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToText(KeyOf(frame.header)),
                     " tells of another batch than the activations did"));
  }
  return std::move(frame.tensors[0]);
}

}  // namespace paceline
