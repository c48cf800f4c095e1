#include "worker/pipeline/mailbox.h"

#include "core/base/errors.h"

namespace paceline {

void Mailbox::AddBoundary(FrameKind kind, int32_t boundary, int capacity) {
  PACELINE_CHECK(capacity > 0, "capacity=", capacity);
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
