#include "worker/pipeline/step_exchange.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/algorithm/container.h"
#include "core/base/errors.h"
#include "core/optim/optimizer.h"
#include "core/transfer/checksum.h"

namespace paceline {

namespace {

static_assert(std::is_trivially_copyable_v<ReplicaCounts> &&
                  sizeof(ReplicaCounts) == 32,
              "it crosses between processes as it lies in memory");

absl::Span<const float> FloatsOf(const Tensor& bytes, size_t offset) {
  return {reinterpret_cast<const float*>(bytes.data.get() + offset),
          (static_cast<size_t>(bytes.bytes()) - offset) / sizeof(float)};
}

// No sum of these overflows.
bool IsPlausible(const ReplicaCounts& counts) {
  constexpr int64_t kMost = int64_t{1} << 48;
  for (const int64_t count :
       {counts.labels, counts.losses.samples, counts.losses.correct}) {
    if (count < 0 || count > kMost) return false;
  }
  return true;
}

size_t PartSize(size_t values, int replicas) {
  return (values + replicas - 1) / replicas;
}

}  // namespace

int64_t ReplicaFrameBytes(int64_t values, int replicas) {
  return static_cast<int64_t>(sizeof(ReplicaCounts) +
                              sizeof(float) * PartSize(values, replicas));
}

absl::Status ReplicaExchange::Tell(const BatchInfo& batch) {
  for (int peer = 0; peer < place_.replicas; ++peer) {
    if (peer == place_.replica) continue;
    PACELINE_RETURN_IF_ERROR(
        Send(ReplicaFrame::kBatch, batch, peer, nullptr, {}));
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchInfo> ReplicaExchange::Await(int64_t ordinal) {
  PACELINE_ASSIGN_OR_RETURN(
      const Frame frame, link_.Receive(ReplicaKey(
                             ReplicaFrame::kBatch, place_.boundary, ordinal,
                             place_.leader, place_.replica, place_.replicas)));
  return frame.header.batch;
}

absl::StatusOr<uint64_t> ReplicaExchange::Sum(const BatchInfo& batch,
                                              ReplicaCounts& counts) {
  PACELINE_ASSIGN_OR_RETURN(const Values gradient, engine_.FlatGradient());
  PACELINE_RETURN_IF_ERROR(SendParts(batch, gradient, counts));
  // While the others' parts are on their way.
  const uint64_t state = engine_.StateHash();
  PACELINE_RETURN_IF_ERROR(AddParts(batch, gradient, counts));
  const Values own = PartOf(gradient, place_.replica);
  for (int peer = 0; peer < place_.replicas; ++peer) {
    if (peer == place_.replica) continue;
    PACELINE_RETURN_IF_ERROR(
        Send(ReplicaFrame::kSum, batch, peer, nullptr, own));
  }
  for (int peer = 0; peer < place_.replicas; ++peer) {
    if (peer == place_.replica) continue;
    const Values part = PartOf(gradient, peer);
    PACELINE_ASSIGN_OR_RETURN(
        const Tensor sum,
        Receive(ReplicaFrame::kSum, batch, peer, part.size() * sizeof(float)));
    absl::c_copy(FloatsOf(sum, 0), part.begin());
  }
  Checksum checksum;
  checksum.Update({reinterpret_cast<const uint8_t*>(gradient.data()),
                   gradient.size() * sizeof(float)});
  checksum.Update({reinterpret_cast<const uint8_t*>(&state), sizeof(state)});
  return checksum.Digest();
}

absl::Status ReplicaExchange::SumCounts(const BatchInfo& batch,
                                        ReplicaCounts& counts) {
  PACELINE_RETURN_IF_ERROR(SendParts(batch, {}, counts));
  return AddParts(batch, {}, counts);
}

// Each replica sends before it waits.
absl::Status ReplicaExchange::SendParts(const BatchInfo& batch, Values gradient,
                                        const ReplicaCounts& counts) {
  for (int peer = 0; peer < place_.replicas; ++peer) {
    if (peer == place_.replica) continue;
    PACELINE_RETURN_IF_ERROR(Send(ReplicaFrame::kPart, batch, peer, &counts,
                                  PartOf(gradient, peer)));
  }
  return absl::OkStatus();
}

absl::Status ReplicaExchange::AddParts(const BatchInfo& batch, Values gradient,
                                       ReplicaCounts& counts) {
  const Values own = PartOf(gradient, place_.replica);
  std::vector<float> sum(own.size(), 0.0f);
  ReplicaCounts total;
  for (int peer = 0; peer < place_.replicas; ++peer) {
    ReplicaCounts of_peer = counts;
    std::optional<Tensor> part;
    if (peer != place_.replica) {
      PACELINE_ASSIGN_OR_RETURN(
          part, Receive(ReplicaFrame::kPart, batch, peer,
                        sizeof(counts) + own.size() * sizeof(float)));
      std::memcpy(&of_peer, part->data.get(), sizeof(of_peer));
    }
    if (!IsPlausible(of_peer)) {
      return InvalidArgument("replica ", peer, " counts ", of_peer.labels,
                             " labels and ", of_peer.losses.samples,
                             " samples of a loss in step ", batch.step);
    }
    total.losses.Add(of_peer.losses);
    total.labels += of_peer.labels;
    AddTo(absl::MakeSpan(sum),
          part.has_value() ? FloatsOf(*part, sizeof(counts)) : own);
  }
  counts = total;
  absl::c_copy(sum, own.begin());
  return absl::OkStatus();
}

ReplicaExchange::Values ReplicaExchange::PartOf(Values gradient,
                                                int index) const {
  const size_t size = PartSize(gradient.size(), place_.replicas);
  const size_t begin = std::min(gradient.size(), size * index);
  return gradient.subspan(begin, size);
}

absl::Status ReplicaExchange::Send(ReplicaFrame what, const BatchInfo& batch,
                                   int receiver, const ReplicaCounts* counts,
                                   Values values) {
  const size_t begin = counts == nullptr ? 0 : sizeof(*counts);
  const auto bytes =
      static_cast<int64_t>(begin + values.size() * sizeof(float));
  // A batch alone has nothing to say beside its header.
  Tensor tensor = Tensor::Zeros(DType::kU8, {std::max<int64_t>(1, bytes)});
  if (counts != nullptr) std::memcpy(tensor.data.get(), counts, begin);
  if (!values.empty()) {
    std::memcpy(tensor.data.get() + begin, values.data(),
                values.size() * sizeof(float));
  }
  const FrameKey key = ReplicaKey(what, place_.boundary, batch.ordinal,
                                  place_.replica, receiver, place_.replicas);
  return link_.Send(FrameOf(key, batch, {std::move(tensor)}));
}

absl::StatusOr<Tensor> ReplicaExchange::Receive(ReplicaFrame what,
                                                const BatchInfo& batch,
                                                int sender, size_t bytes) {
  PACELINE_ASSIGN_OR_RETURN(
      Frame frame,
      link_.Receive(ReplicaKey(what, place_.boundary, batch.ordinal, sender,
                               place_.replica, place_.replicas)));
  const auto need = std::max<int64_t>(1, static_cast<int64_t>(bytes));
  if (frame.header.batch == batch && frame.tensors[0].bytes() == need) {
    return std::move(frame.tensors[0]);
  }
  return InvalidArgument(
      "replica ", sender, " sends ", frame.tensors[0].bytes(), " bytes, need ",
      need, ", or tells of another batch ", batch.ordinal, " than the leader");
}

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

// All that goes to other workers goes first.
absl::Status TieExchange::Cross(const BatchInfo& batch, bool from_owner) {
  const FrameKind kind =
      from_owner ? FrameKind::kTiedValue : FrameKind::kTiedGradient;
  const auto read = [&](const Place& place) -> absl::StatusOr<Tensor> {
    StageEngine& engine = *(from_owner ? place.owner : place.user);
    PACELINE_ASSIGN_OR_RETURN(const TiedTensors tied,
                              engine.Tied(place.tie.parameter, from_owner));
    return from_owner ? tied.value : tied.gradient;
  };
  const auto comes_from = [&](const Place& place) {
    return from_owner ? place.owner : place.user;
  };
  const auto goes_to = [&](const Place& place) {
    return from_owner ? place.user : place.owner;
  };
  for (const Place& place : places_) {
    if (comes_from(place) == nullptr || goes_to(place) != nullptr) continue;
    PACELINE_ASSIGN_OR_RETURN(const Tensor tensor, read(place));
    PACELINE_RETURN_IF_ERROR(link_.Send(FrameOf(
        {kind, place.boundary, batch.ordinal, 0}, batch, {CopyOf(tensor)})));
  }
  for (const Place& place : places_) {
    if (goes_to(place) == nullptr) continue;
    PACELINE_ASSIGN_OR_RETURN(const Tensor tensor,
                              comes_from(place) == nullptr
                                  ? Receive(kind, place, batch)
                                  : read(place));
    PACELINE_ASSIGN_OR_RETURN(
        TiedTensors to,
        goes_to(place)->Tied(place.tie.parameter, /*owner=*/!from_owner));
    if (from_owner) {
      std::memcpy(to.value.data.get(), tensor.data.get(), tensor.bytes());
    } else {
      AddTo(to.gradient.As<float>(), tensor.As<float>());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> TieExchange::Receive(FrameKind kind, const Place& place,
                                            const BatchInfo& batch) {
  PACELINE_ASSIGN_OR_RETURN(
      Frame frame, link_.Receive({kind, place.boundary, batch.ordinal, 0}));
  if (frame.header.batch != batch) {
    return InvalidArgument(ToText(KeyOf(frame.header)),
                           " tells of another batch than the activations did");
  }
  return std::move(frame.tensors[0]);
}

}  // namespace paceline
