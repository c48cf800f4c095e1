#include "worker/pipeline/link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {

FrameKey KeyOf(const FrameHeader& header) {
  return {header.kind, header.boundary, header.batch.ordinal,
          header.micro_batch};
}

Frame FrameOf(const FrameKey& key, const BatchInfo& batch, TensorList tensors) {
  Frame frame;
  frame.header.kind = key.kind;
  frame.header.boundary = key.boundary;
  frame.header.batch = batch;
  frame.header.micro_batch = key.micro_batch;
  frame.tensors = std::move(tensors);
  return frame;
}

FrameKey ReplicaKey(ReplicaFrame what, int32_t boundary, int64_t batch,
                    int sender, int receiver, int replicas) {
  return {FrameKind::kReplica, boundary, batch,
          (static_cast<int>(what) * replicas + sender) * replicas + receiver};
}

std::pair<int, int> ReplicasOfKey(const FrameKey& key, const StageWiring& from,
                                  const StageWiring& to) {
  if (key.kind != FrameKind::kReplica) {
    return {from.route.ReplicaOf(key.batch, key.micro_batch),
            to.route.ReplicaOf(key.batch, key.micro_batch)};
  }
  const auto replicas = static_cast<int>(from.replicas.size());
  return {key.micro_batch / replicas % replicas, key.micro_batch % replicas};
}

std::string ToText(const FrameKey& key) {
  return absl::StrCat(FrameKindName(key.kind), " of batch ", key.batch,
                      ", micro-batch ", key.micro_batch, " at boundary ",
                      key.boundary);
}

std::optional<FrameEnds> EndsOf(FrameKind kind, int32_t boundary, int stages,
                                const std::vector<Tie>& ties) {
  const int tie = boundary - (stages - 1);
  const int stage = tie - static_cast<int>(ties.size());
  if (kind == FrameKind::kReplica) {
    if (stage < 0 || stage >= stages) return std::nullopt;
    return FrameEnds{stage, stage};
  }
  const bool is_tied =
      kind == FrameKind::kTiedGradient || kind == FrameKind::kTiedValue;
  if (kind == FrameKind::kHello || boundary < 0 || stage >= 0 ||
      is_tied != (tie >= 0)) {
    return std::nullopt;
  }
  FrameEnds ends = {boundary, boundary + 1};
  if (is_tied) ends = {ties[tie].owner_stage, ties[tie].user_stage};
  if (kind == FrameKind::kGradient || kind == FrameKind::kTiedGradient) {
    std::swap(ends.from, ends.to);
  }
  return ends;
}

std::vector<std::pair<FrameKind, int32_t>> Crossings(
    int stages, const std::vector<Tie>& ties) {
  const int32_t cuts = stages - 1;
  const auto end = static_cast<int32_t>(cuts + ties.size());
  std::vector<std::pair<FrameKind, int32_t>> crossings;
  for (int32_t boundary = 0; boundary < end; ++boundary) {
    const bool is_cut = boundary < cuts;
    crossings.emplace_back(
        is_cut ? FrameKind::kActivation : FrameKind::kTiedGradient, boundary);
    crossings.emplace_back(
        is_cut ? FrameKind::kGradient : FrameKind::kTiedValue, boundary);
  }
  for (int stage = 0; stage < stages; ++stage) {
    crossings.emplace_back(FrameKind::kReplica, end + stage);
  }
  return crossings;
}

int BoundOf(const ScheduleBounds& bounds, FrameKind kind, int32_t boundary) {
  if (kind == FrameKind::kTiedGradient || kind == FrameKind::kTiedValue) {
    return 1;
  }
  if (kind == FrameKind::kReplica) return kReplicaFrames;
  const std::vector<int>& frames = kind == FrameKind::kActivation
                                       ? bounds.activation_frames
                                       : bounds.gradient_frames;
  return std::max(1, frames[boundary]);
}

int SendLimit(int bound) { return 4 * bound + 64; }

int StageWiring::IndexOf(WorkerId worker) const {
  const auto found =
      std::ranges::find(replicas, worker, &WorkerAddress::worker);
  return found == replicas.end() ? -1
                                 : static_cast<int>(found - replicas.begin());
}

// --- Mailbox
// -------------------------------------------------------------------

void Mailbox::AddBoundary(FrameKind kind, int32_t boundary, int capacity) {
  PACELINE_CHECK(capacity > 0, absl::StrCat("capacity=", capacity));
  absl::MutexLock lock(&mutex_);
  bounds_[{kind, boundary}] = {capacity, 0};
}

absl::Status Mailbox::Put(Frame frame) {
  absl::MutexLock lock(&mutex_);
  return PutLocked(std::move(frame));
}

absl::Status Mailbox::PutAll(std::vector<Frame> frames) {
  absl::Status first;
  absl::MutexLock lock(&mutex_);
  for (Frame& frame : frames) first.Update(PutLocked(std::move(frame)));
  return first;
}

absl::Status Mailbox::PutLocked(Frame frame) {
  const FrameKey key = KeyOf(frame.header);
  PACELINE_RETURN_IF_ERROR(CheckLocked(key.kind, key.boundary));
  if (frames_.contains(key)) {
    return AlreadyExists("the ", ToText(key), " is here already");
  }
  Bound& bound = bounds_.at({key.kind, key.boundary});
  if (bound.waiting == bound.capacity) {
    return ResourceExhausted("no room for the ", ToText(key), ": ",
                             bound.waiting, " frames wait there, at most ",
                             bound.capacity, " may");
  }
  ++bound.waiting;
  frames_.emplace(key, std::move(frame));
  return absl::OkStatus();
}

absl::StatusOr<Frame> Mailbox::Take(const FrameKey& key) {
  absl::MutexLock lock(&mutex_);
  PACELINE_RETURN_IF_ERROR(CheckLocked(key.kind, key.boundary));
  // The thread that unlocks evaluates the condition, so that other frames do
  // not wake this one.
  const auto here = [this, &key]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !ended_.ok() || frames_.contains(key);
  };
  mutex_.Await(absl::Condition(&here));
  if (!ended_.ok()) return ended_;
  --bounds_.at({key.kind, key.boundary}).waiting;
  return std::move(frames_.extract(key).mapped());
}

absl::StatusOr<BatchInfo> Mailbox::AwaitBatch(int32_t boundary,
                                              int64_t ordinal) {
  absl::MutexLock lock(&mutex_);
  PACELINE_RETURN_IF_ERROR(CheckLocked(FrameKind::kActivation, boundary));
  const auto here = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !ended_.ok() || FirstOfBatchLocked(boundary, ordinal);
  };
  mutex_.Await(absl::Condition(&here));
  if (!ended_.ok()) return ended_;
  return FirstOfBatchLocked(boundary, ordinal)->header.batch;
}

bool Mailbox::Cancel(absl::Status why) {
  PACELINE_CHECK(!why.ok(), "cancelled with OK");
  std::map<FrameKey, Frame> dropped;  // freed outside the lock
  absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return false;
  ended_ = std::move(why);
  dropped.swap(frames_);
  return true;
}

absl::Status Mailbox::CheckLocked(FrameKind kind, int32_t boundary) const {
  if (!ended_.ok()) return ended_;
  if (bounds_.contains({kind, boundary})) return absl::OkStatus();
  return NotFound("no ", FrameKindName(kind), " comes in at boundary ",
                  boundary);
}

const Frame* Mailbox::FirstOfBatchLocked(int32_t boundary,
                                         int64_t ordinal) const {
  const auto first =
      frames_.lower_bound({FrameKind::kActivation, boundary, ordinal, 0});
  const bool found =
      first != frames_.end() && first->first.kind == FrameKind::kActivation &&
      first->first.boundary == boundary && first->first.batch == ordinal;
  return found ? &first->second : nullptr;
}

}  // namespace paceline
