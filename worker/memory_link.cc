#include "worker/memory_link.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/transfer/frame_check.h"
#include "worker/mailbox.h"

namespace paceline {
namespace {

using Direction = std::pair<FrameKind, int32_t>;

// One worker's end.  Thread-safe.
struct End {
  Mailbox mailbox;

  absl::Mutex mutex;
  absl::Status ended ABSL_GUARDED_BY(mutex);
  // Frames sent from here and not taken at the other end.
  std::map<Direction, int> on_the_way ABSL_GUARDED_BY(mutex);

  void Cancel(const absl::Status& why) {
    if (!mailbox.Cancel(why)) return;
    absl::MutexLock lock(&mutex);
    ended = why;
  }

  void OnTaken(const Direction& direction) {
    absl::MutexLock lock(&mutex);
    --on_the_way[direction];
  }

  absl::Status OnSending(const FrameKey& key, int limit) {
    absl::MutexLock lock(&mutex);
    PACELINE_RETURN_IF_ERROR(ended);
    int& count = on_the_way[{key.kind, key.boundary}];
    if (count >= limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot send the ", ToText(key), ": ", count,
                       " frames are on the way, at most ", limit, " may be"));
    }
    ++count;
    return absl::OkStatus();
  }

  absl::Status AwaitRoom(const Direction& direction, int frames, int limit) {
    absl::MutexLock lock(&mutex);
    const auto room = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
      return !ended.ok() || on_the_way[direction] + frames <= limit;
    };
    mutex.Await(absl::Condition(&room));
    return ended;
  }
};

// Constant after construction; what the ends hold has its own locks.
struct Mesh {
  MemoryWiring wiring;
  std::vector<std::unique_ptr<End>> ends;  // by worker
};

class MemoryLink final : public Link {
 public:
  // The mesh is shared by its links.
  MemoryLink(std::shared_ptr<Mesh> mesh, int self)
      : mesh_(std::move(mesh)), self_(self) {}

  ~MemoryLink() override { Cancel(absl::CancelledError("the run was closed")); }

  absl::Status Send(Frame frame) override {
    FrameHeader& header = frame.header;
    if (!Sends(header.kind, header.boundary)) {
      return absl::NotFoundError(absl::StrCat("no ", FrameKindName(header.kind),
                                              " goes out at boundary ",
                                              header.boundary));
    }
    header.fence = mesh_->wiring.fence;
    header.tensors.clear();
    for (const Tensor& tensor : frame.tensors) {
      header.tensors.push_back({tensor.dtype, tensor.shape});
    }
    const int receiver = WorkerOf(Ends(header.kind, header.boundary)->to);
    if (receiver == self_) return Mine().mailbox.Put(std::move(frame));

    PACELINE_RETURN_IF_ERROR(Mine().OnSending(
        KeyOf(header), SendLimit(Bound(header.kind, header.boundary))));
    // Fails only at a receiver whose run has ended, as a lost neighbour's: the
    // sender is not told.
    (void)mesh_->ends[receiver]->mailbox.Put(std::move(frame));
    return absl::OkStatus();
  }

  absl::StatusOr<Frame> Receive(const FrameKey& key) override {
    PACELINE_ASSIGN_OR_RETURN(Frame frame, Mine().mailbox.Take(key));
    const int sender = WorkerOf(Ends(key.kind, key.boundary)->from);
    if (sender != self_) {
      mesh_->ends[sender]->OnTaken({key.kind, key.boundary});
    }
    return frame;
  }

  absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary,
                                       int64_t ordinal) override {
    return Mine().mailbox.AwaitBatch(boundary, ordinal);
  }

  absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary,
                                           int frames) override {
    constexpr FrameKind kKind = FrameKind::kActivation;
    if (!Sends(kKind, boundary)) {
      return absl::NotFoundError(
          absl::StrCat("no activation goes out at boundary ", boundary));
    }
    if (WorkerOf(boundary + 1) == self_) return absl::ZeroDuration();
    const int bound = Bound(kKind, boundary);
    PACELINE_RETURN_IF_ERROR(Mine().AwaitRoom(
        {kKind, boundary}, std::min(frames, bound), 2 * bound));
    return absl::ZeroDuration();  // frames take no time here
  }

  void Cancel(absl::Status why) override { Mine().Cancel(why); }

 private:
  End& Mine() { return *mesh_->ends[self_]; }
  int Bound(FrameKind kind, int32_t boundary) const {
    return BoundOf(mesh_->wiring.bounds, kind, boundary);
  }
  int WorkerOf(int stage) const { return mesh_->wiring.worker_of[stage]; }

  std::optional<FrameEnds> Ends(FrameKind kind, int32_t boundary) const {
    const auto stages = static_cast<int>(mesh_->wiring.worker_of.size());
    return EndsOf(kind, boundary, stages, mesh_->wiring.ties);
  }
  bool Sends(FrameKind kind, int32_t boundary) const {
    const std::optional<FrameEnds> ends = Ends(kind, boundary);
    return ends.has_value() && WorkerOf(ends->from) == self_;
  }

  const std::shared_ptr<Mesh> mesh_;
  const int self_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Link>>> MakeMemoryLinks(
    const MemoryWiring& wiring) {
  const auto& worker_of = wiring.worker_of;
  PACELINE_RETURN_IF_ERROR(CheckBounds(wiring.bounds, worker_of.size()));
  if (*std::min_element(worker_of.begin(), worker_of.end()) < 0) {
    return absl::InvalidArgumentError("a stage on a negative worker");
  }
  const int workers = *std::max_element(worker_of.begin(), worker_of.end()) + 1;

  const auto mesh = std::make_shared<Mesh>();
  mesh->wiring = wiring;
  for (int worker = 0; worker < workers; ++worker) {
    mesh->ends.push_back(std::make_unique<End>());
  }
  const auto stages = static_cast<int>(worker_of.size());
  for (const auto& [kind, boundary] : Crossings(stages, wiring.ties)) {
    const int to = EndsOf(kind, boundary, stages, wiring.ties)->to;
    mesh->ends[worker_of[to]]->mailbox.AddBoundary(
        kind, boundary, SendLimit(BoundOf(wiring.bounds, kind, boundary)));
  }
  std::vector<std::unique_ptr<Link>> links;
  for (int worker = 0; worker < workers; ++worker) {
    links.push_back(std::make_unique<MemoryLink>(mesh, worker));
  }
  return links;
}

}  // namespace paceline
