#include "tests/support/pipeline/memory_link.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"
#include "core/transfer/frame.h"

namespace paceline {
namespace {

// Kind, boundary, and the worker that receives.
using Direction = std::tuple<FrameKind, int32_t, int>;

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

  absl::Status OnSending(const FrameKey& key, int receiver, int limit) {
    absl::MutexLock lock(&mutex);
    PACELINE_RETURN_IF_ERROR(ended);
    int& count = on_the_way[{key.kind, key.boundary, receiver}];
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

  int stages() const { return static_cast<int>(wiring.workers_of.size()); }
  bool Holds(int worker, int stage) const {
    const std::vector<int>& workers = wiring.workers_of[stage];
    return std::find(workers.begin(), workers.end(), worker) != workers.end();
  }
  // That frame is this worker's turn, to receive (send) it.
  int WorkerOf(int stage, const FrameKey& key, bool receives = true) const {
    const auto wired = [this](int of) {
      StageWiring stage;
      stage.replicas.resize(wiring.workers_of[of].size());
      if (!wiring.routes.empty()) stage.route = wiring.routes[of];
      return stage;
    };
    const auto [from, to] = ReplicasOfKey(key, wired(stage), wired(stage));
    return wiring.workers_of[stage][receives ? to : from];
  }
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
    const FrameKey key = KeyOf(header);
    const int receiver = mesh_->WorkerOf(Ends(key.kind, key.boundary)->to, key);
    if (receiver == self_) return Mine().mailbox.Put(std::move(frame));

    PACELINE_RETURN_IF_ERROR(Mine().OnSending(
        key, receiver, SendLimit(Bound(key.kind, key.boundary))));
    // Fails only at a receiver whose run has ended, as a lost neighbour's: the
    // sender is not told.
    (void)mesh_->ends[receiver]->mailbox.Put(std::move(frame));
    return absl::OkStatus();
  }

  absl::StatusOr<Frame> Receive(const FrameKey& key) override {
    PACELINE_ASSIGN_OR_RETURN(Frame frame, Mine().mailbox.Take(key));
    const int sender =
        mesh_->WorkerOf(Ends(key.kind, key.boundary)->from, key, false);
    if (sender != self_) {
      mesh_->ends[sender]->OnTaken({key.kind, key.boundary, self_});
    }
    return frame;
  }

  absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary,
                                       int64_t ordinal) override {
    return Mine().mailbox.AwaitBatch(boundary, ordinal);
  }

  absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary, int64_t ordinal,
                                           int frames,
                                           int micro_batch) override {
    constexpr FrameKind kKind = FrameKind::kActivation;
    if (!Sends(kKind, boundary)) {
      return absl::NotFoundError(
          absl::StrCat("no activation goes out at boundary ", boundary));
    }
    const int receiver =
        mesh_->WorkerOf(boundary + 1, {kKind, boundary, ordinal, micro_batch});
    if (receiver == self_) return absl::ZeroDuration();
    const int bound = Bound(kKind, boundary);
    PACELINE_RETURN_IF_ERROR(Mine().AwaitRoom(
        {kKind, boundary, receiver}, std::min(frames, bound), 2 * bound));
    return absl::ZeroDuration();  // frames take no time here
  }

  void Cancel(absl::Status why) override { Mine().Cancel(why); }

 private:
  End& Mine() { return *mesh_->ends[self_]; }
  int Bound(FrameKind kind, int32_t boundary) const {
    return BoundOf(mesh_->wiring.bounds, kind, boundary);
  }
  std::optional<FrameEnds> Ends(FrameKind kind, int32_t boundary) const {
    return EndsOf(kind, boundary, mesh_->stages(), mesh_->wiring.ties);
  }
  bool Sends(FrameKind kind, int32_t boundary) const {
    const std::optional<FrameEnds> ends = Ends(kind, boundary);
    return ends.has_value() && mesh_->Holds(self_, ends->from);
  }

  const std::shared_ptr<Mesh> mesh_;
  const int self_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Link>>> MakeMemoryLinks(
    const MemoryWiring& wiring) {
  const auto mesh = std::make_shared<Mesh>();
  mesh->wiring = wiring;
  int workers = 0;
  for (const std::vector<int>& holders : wiring.workers_of) {
    for (const int worker : holders) {
      if (worker < 0) {
        return absl::InvalidArgumentError("a stage on a negative worker");
      }
      workers = std::max(workers, worker + 1);
    }
  }
  for (int worker = 0; worker < workers; ++worker) {
    mesh->ends.push_back(std::make_unique<End>());
  }
  const int stages = mesh->stages();
  for (const auto& [kind, boundary] : Crossings(stages, wiring.ties)) {
    const FrameEnds ends = *EndsOf(kind, boundary, stages, wiring.ties);
    const auto senders = static_cast<int>(wiring.workers_of[ends.from].size());
    const int limit = SendLimit(BoundOf(wiring.bounds, kind, boundary));
    for (const int receiver : wiring.workers_of[ends.to]) {
      mesh->ends[receiver]->mailbox.AddBoundary(kind, boundary,
                                                senders * limit);
    }
  }
  std::vector<std::unique_ptr<Link>> links;
  for (int worker = 0; worker < workers; ++worker) {
    links.push_back(std::make_unique<MemoryLink>(mesh, worker));
  }
  return links;
}

}  // namespace paceline
