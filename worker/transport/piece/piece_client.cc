#include "worker/transport/piece/piece_client.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/obs/log.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"
#include "core/transfer/checksum.h"
#include "core/trust/certificates.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "paceline/v1/stage.grpc.pb.h"

namespace paceline {
namespace {

constexpr size_t kMostChunkBytes = 1 << 20;
// Bounds one layer's state where its size is not known.
constexpr int64_t kMostPieceBytes = int64_t{64} << 30;
constexpr int kCallsAtOnce = 2;
// A source whose connection broke after this many bytes is asked for the rest.
constexpr int64_t kLeastBytes = 64 << 10;
// A source that has sent nothing for this long gets a second source beside it.
constexpr absl::Duration kHedge = absl::Milliseconds(300);
// Pause between two calls to a followed source, doubled while they fail.
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMostBackoff = absl::Seconds(2);
// A call that lasted this long was connected: dialling takes less, even where a
// name has several addresses.
constexpr absl::Duration kLongestDial = absl::Seconds(25);
// A wait checks this often whether it was cancelled.
constexpr absl::Duration kGatherPoll = absl::Milliseconds(20);

// The request of one call, and the functions that receive its answer.
struct PieceAsk {
  std::string address;
  Role server = Role::kWorker;
  Incarnation to;
  JobId job;
  // The cut; or, when following, only the attempt of the run counts.
  Cut cut;
  bool follows = false;
  std::vector<LayerRange> layers;
  // [layer]: bytes of a piece; missing: not known.
  std::map<int, int64_t> bytes = {};
  // The first bytes of the first layer, from an earlier call; null: none.
  std::shared_ptr<StoredPiece> begun = nullptr;
  size_t begun_bytes = 0;
  // Called on gRPC's threads, one at a time, without a lock.
  std::function<void()> on_chunk = nullptr;
  // Called before memory is taken for a piece; false: the piece is left out.
  std::function<bool(const Piece&, int64_t bytes)> admit = nullptr;
  std::function<void(PiecePtr)> on_piece;
  // Called before on_done if the connection broke after `received` bytes.
  //   part  the first bytes of an incomplete piece; null: there is none
  std::function<void(std::shared_ptr<StoredPiece> part, size_t part_bytes,
                     int64_t received)>
      on_broken = nullptr;
  // Called last.  OK: all pieces of the cut have come.
  std::function<void(absl::Status)> on_done;
};

// Assembles the pieces of one answer.  The other side may be hostile.
// Thread-compatible.
class PieceReader {
 public:
  explicit PieceReader(const PieceAsk& ask)
      : ask_(ask), piece_(ask.begun), received_(ask.begun_bytes) {}

  // Returns the piece when it is complete, else null.
  // Errors: InvalidArgument  it was not asked for, or its chunks do not match
  //         DataLoss         the checksum is wrong
  absl::StatusOr<PiecePtr> Take(const v1::PieceChunk& chunk) {
    if (IdOf(chunk) == left_out_) return PiecePtr();
    PACELINE_RETURN_IF_ERROR(Check(chunk));
    if (piece_ == nullptr) {
      if (ask_.admit && !ask_.admit(IdOf(chunk), chunk.total_bytes())) {
        left_out_ = IdOf(chunk);
        return PiecePtr();
      }
      piece_ = std::make_shared<StoredPiece>();
      piece_->piece = IdOf(chunk);
      piece_->size = static_cast<size_t>(chunk.total_bytes());
      piece_->checksum = chunk.checksum();
      // Pages that were not written yet take no memory.
      piece_->data = std::make_shared_for_overwrite<uint8_t[]>(piece_->size);
      received_ = 0;
    }
    std::memcpy(piece_->data.get() + received_, chunk.data().data(),
                chunk.data().size());
    received_ += chunk.data().size();
    if (received_ < piece_->size) return PiecePtr();
    const std::shared_ptr<StoredPiece> whole = std::move(piece_);
    if (HashBytes(whole->bytes()) != whole->checksum) {
      return DataLoss("layer ", whole->piece.layer, " of ",
                      CutText(whole->piece.cut), ": the checksum of its ",
                      whole->size, " bytes is wrong");
    }
    taken_.insert(whole->piece.layer);
    return PiecePtr(whole);
  }

  // The first bytes of an incomplete piece; null: none.
  std::shared_ptr<StoredPiece> part() const { return piece_; }
  size_t part_bytes() const { return received_; }

  // Called when the call ended with OK.
  // Errors: DataLoss  a piece is missing
  absl::Status CheckEnd() const {
    if (ask_.follows) return Unavailable("the stream has ended");
    for (const LayerRange& range : ask_.layers) {
      for (int layer = range.first; layer < range.last; ++layer) {
        if (taken_.contains(layer)) continue;
        return DataLoss("the answer ends without layer ", layer);
      }
    }
    return absl::OkStatus();
  }

 private:
  static Piece IdOf(const v1::PieceChunk& chunk) {
    return {{chunk.attempt(), chunk.step()}, chunk.layer()};
  }

  absl::Status Check(const v1::PieceChunk& chunk) const {
    const Piece id = IdOf(chunk);
    const auto wrong = [&](auto... what) {
      return InvalidArgument("a piece of layer ", id.layer, " of ",
                             CutText(id.cut), " ", what...);
    };
    const bool wanted =
        ask_.follows ? id.cut.attempt == ask_.cut.attempt && id.cut.step >= 0
                     : id.cut == ask_.cut && !taken_.contains(id.layer);
    if (!wanted || !Contains(ask_.layers, id.layer)) {
      return wrong("came, which was not asked for");
    }
    const int64_t size = chunk.data().size();
    const auto known = ask_.bytes.find(id.layer);
    const int64_t total = chunk.total_bytes();
    if (total < 0 || total > kMostPieceBytes ||
        (known != ask_.bytes.end() && total != known->second)) {
      return wrong("has ", total, " bytes, need ",
                   known == ask_.bytes.end() ? kMostPieceBytes : known->second,
                   known == ask_.bytes.end() ? " at most" : "");
    }
    const bool goes_on = piece_ != nullptr;
    if (goes_on &&
        (id != piece_->piece || total != static_cast<int64_t>(piece_->size) ||
         chunk.checksum() != piece_->checksum)) {
      return wrong("came in the middle of layer ", piece_->piece.layer, " of ",
                   CutText(piece_->piece.cut));
    }
    const int64_t offset = goes_on ? static_cast<int64_t>(received_) : 0;
    if (chunk.offset() != offset || size > total - offset ||
        size > static_cast<int64_t>(kMostChunkBytes) ||
        (size == 0 && total > 0)) {
      return wrong("has ", size, " bytes at ", chunk.offset(), " of ", total,
                   ", need some at ", offset);
    }
    return absl::OkStatus();
  }

  const PieceAsk& ask_;
  std::shared_ptr<StoredPiece> piece_;  // incomplete; null: none
  size_t received_ = 0;                 // bytes of piece_
  std::optional<Piece> left_out_;       // the last piece left out
  std::set<int> taken_;                 // layers of a cut that have come
};

// One call.  Thread-safe; gRPC keeps it until OnDone().
class PieceCall final : public grpc::ClientReadReactor<v1::PieceChunk>,
                        public std::enable_shared_from_this<PieceCall> {
 public:
  // `channels` and `timers` outlive the call.
  PieceCall(PieceAsk ask, CallChannels& channels, TimerThread& timers)
      : running_(channels, timers),
        ask_(std::move(ask)),
        channels_(channels),
        reader_(ask_) {
    v1::PieceRequest& request = request_;
    request.set_to(ask_.to.value);
    request.set_job(ask_.job.value);
    request.set_attempt(ask_.cut.attempt);
    if (ask_.follows) {
      request.set_follow(true);
    } else {
      request.set_step(ask_.cut.step);
      request.set_offset(static_cast<int64_t>(ask_.begun_bytes));
    }
    for (const LayerRange& range : ask_.layers) {
      *request.add_layers() = ToProto(range);
    }
  }

  void Start() {
    self_ = shared_from_this();
    // A channel of its own, because gRPC would wait before it dials an address
    // again that was out of reach.
    stub_ = v1::Stage::NewStub(channels_.Make(ask_.address, ask_.server));
    stub_->async()->Pieces(&context_, &request_, this);
    StartRead(&chunk_);
    StartCall();
  }
  // on_done() is still called.
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok || !failure_.ok()) return;
    if (ask_.on_chunk != nullptr) ask_.on_chunk();
    received_ += static_cast<int64_t>(chunk_.data().size());
    absl::StatusOr<PiecePtr> piece = reader_.Take(chunk_);
    if (!piece.ok()) {
      failure_ = piece.status();
      context_.TryCancel();
      return;
    }
    if (*piece != nullptr) ask_.on_piece(*std::move(piece));
    StartRead(&chunk_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<PieceCall> self = std::move(self_);
    absl::Status end = failure_.ok() ? FromGrpc(status) : failure_;
    if (end.ok()) end = reader_.CheckEnd();
    if (absl::IsUnavailable(end) && ask_.on_broken != nullptr) {
      ask_.on_broken(reader_.part(), reader_.part_bytes(), received_);
    }
    ask_.on_done(std::move(end));
  }

  struct Running {
    Running(CallChannels& c, TimerThread& t) : channels(c), timers(t) {
      c.OnCallStarted();
    }
    ~Running() {
      timers.Run([&all = channels] { all.DropUnused(); });
      channels.OnCallEnded();
    }
    CallChannels& channels;
    TimerThread& timers;
  };

  // Destroyed last, because the context keeps the channel.
  const Running running_;
  // Constant after construction.
  const PieceAsk ask_;
  CallChannels& channels_;
  v1::PieceRequest request_;

  grpc::ClientContext context_;
  std::unique_ptr<v1::Stage::Stub> stub_;
  // Used by gRPC's reactions, which come one after the other.
  PieceReader reader_;
  v1::PieceChunk chunk_;
  int64_t received_ = 0;  // bytes of pieces
  absl::Status failure_;
  std::shared_ptr<PieceCall> self_;
};

}  // namespace

PieceClient::PieceClient(PieceStore& store, std::string coordinator,
                         absl::Duration patience)
    : store_(store),
      coordinator_(std::move(coordinator)),
      patience_(patience),
      timers_("pieces") {}

PieceClient::~PieceClient() { Shutdown(); }

void PieceClient::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  Follow({});
  timers_.Stop();
  channels_.AwaitCalls();
}

// --- Following ---------------------------------------------------------------

struct PieceClient::Following {
  FollowOrder order;
  // All guarded by PieceClient::mutex_.
  bool over = false;
  absl::Duration backoff;
  bool said = false;  // the failure was logged
  Instant begun;      // of the call
  // Beginning of the present series of calls that did not reach the source.
  std::optional<Instant> failing_since;
  bool declined = false;
  std::shared_ptr<PieceCall> call;  // null: it waits for the next one
};

void PieceClient::Follow(const std::vector<FollowOrder>& orders) {
  std::vector<std::shared_ptr<PieceCall>> ended;
  std::vector<std::shared_ptr<Following>> begun;
  {
    absl::MutexLock lock(&mutex_);
    std::map<FollowOrder, std::shared_ptr<Following>> next;
    for (const FollowOrder& order : orders) {
      if (shut_down_) break;
      auto node = following_.extract(order);
      if (!node.empty()) {
        next.insert(std::move(node));
      } else if (!next.contains(order)) {
        begun.push_back(std::make_shared<Following>());
        begun.back()->order = order;
        begun.back()->backoff = kFirstBackoff;
        next[order] = begun.back();
      }
    }
    following_.swap(next);
    for (const auto& [order, following] : next) {
      following->over = true;
      if (following->call != nullptr) ended.push_back(following->call);
    }
  }
  for (const auto& call : ended) call->Cancel();
  for (const auto& following : begun) {
    // Another process may have been followed for these layers until now.
    const FollowOrder& order = following->order;
    store_.DropUnfinished(order.job, order.attempt, order.layers);
    Connect(following);
  }
}

void PieceClient::Connect(const std::shared_ptr<Following>& following) {
  const FollowOrder& order = following->order;
  PieceAsk ask;
  ask.address = order.address;
  ask.to = order.source.incarnation;
  ask.job = order.job;
  ask.cut.attempt = order.attempt;
  ask.follows = true;
  ask.layers = {order.layers};
  ask.admit = [this, following](const Piece& piece, int64_t bytes) {
    const absl::Status room = store_.Admit(following->order.job, piece, bytes);
    if (!room.ok()) SayRefused(*following, room);
    return room.ok();
  };
  ask.on_piece = [this, following](PiecePtr piece) {
    OnFollowed(following, std::move(piece));
  };
  ask.on_done = [this, following](const absl::Status& status) {
    OnEnded(following, status);
  };
  auto call = std::make_shared<PieceCall>(std::move(ask), channels_, timers_);
  absl::MutexLock lock(&mutex_);
  if (following->over) return;
  following->call = call;
  following->begun = clock_.Now();
  call->Start();
}

void PieceClient::OnFollowed(const std::shared_ptr<Following>& following,
                             PiecePtr piece) {
  {
    absl::MutexLock lock(&mutex_);
    if (following->over) return;
  }
  const absl::Status put = store_.Put(following->order.job, std::move(piece));
  if (!put.ok()) SayRefused(*following, put);
  absl::MutexLock lock(&mutex_);
  following->backoff = kFirstBackoff;
  following->failing_since.reset();
  if (put.ok()) following->said = false;
}

void PieceClient::SayRefused(Following& following, const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(following.said, true)) return;
  }
  Log(LogLevel::kWarn, "a piece of another worker was refused",
      {{"job", following.order.job.value},
       {"worker", following.order.source.worker.value},
       {"why", why.message()}});
}

void PieceClient::OnEnded(const std::shared_ptr<Following>& following,
                          const absl::Status& status) {
  const Instant now = clock_.Now();
  absl::Duration pause;
  bool say = false;
  bool decline = false;
  {
    absl::MutexLock lock(&mutex_);
    following->call = nullptr;
    if (following->over) return;
    pause = following->backoff;
    following->backoff = std::min(2 * pause, kMostBackoff);
    say = !std::exchange(following->said, true);
    std::optional<Instant>& since = following->failing_since;
    // Any other error comes from the source itself: it is there, or was
    // restarted.
    const bool out_of_reach =
        absl::IsUnavailable(status) && now - following->begun < kLongestDial;
    if (!out_of_reach) since.reset();
    if (out_of_reach && !since.has_value()) since = now;
    decline = since.has_value() && now - *since >= patience_ &&
              !std::exchange(following->declined, true);
  }
  if (decline) store_.Decline();
  if (say) {
    Log(LogLevel::kWarn, "pieces of another worker cannot be had: trying again",
        {{"job", following->order.job.value},
         {"worker", following->order.source.worker.value},
         {"address", following->order.address},
         {"why", status.ToString()}});
  }
  timers_.RunAfter(pause, [this, following] { Connect(following); });
}

// --- Gathering ---------------------------------------------------------------

// Shared by the waiting thread and by calls, which may end later.
struct PieceClient::Gathering {
  struct Asked {
    std::shared_ptr<PieceCall> call;
    std::vector<int> layers;
    Instant heard;  // its last chunk, or when it began
    bool over = false;
  };
  struct Begun {
    std::shared_ptr<StoredPiece> piece;
    size_t bytes = 0;
  };

  SteadyMutex mutex;
  std::map<int, PiecePtr> found ABSL_GUARDED_BY(mutex);  // by layer
  // By source and layer: bytes from before the connection broke.
  std::map<std::pair<size_t, int>, Begun> begun ABSL_GUARDED_BY(mutex);
  std::vector<Asked> asked ABSL_GUARDED_BY(mutex);  // never shrinks
  // (source, layer): no source is asked for a layer twice.
  std::set<std::pair<size_t, int>> tried ABSL_GUARDED_BY(mutex);
  absl::Status last_error ABSL_GUARDED_BY(mutex);
  bool changed ABSL_GUARDED_BY(mutex) = false;

  // As PieceAsk::on_broken.  A source that sent some bytes may send the rest.
  void OnBroken(size_t source, absl::Span<const LayerRange> layers,
                std::shared_ptr<StoredPiece> part, size_t part_bytes,
                int64_t received) {
    if (received < kLeastBytes) return;
    SteadyLock lock(&mutex);
    if (part != nullptr) {
      begun[{source, part->piece.layer}] = {part, part_bytes};
    }
    std::erase_if(tried, [&](const auto& each) {
      return each.first == source && Contains(layers, each.second);
    });
  }
};

void PieceClient::AskMore(const PieceWant& want, Instant now,
                          const std::shared_ptr<Gathering>& gathering) {
  Gathering& g = *gathering;
  for (size_t source = 0; source < want.sources.size(); ++source) {
    const PieceSource& from = want.sources[source];
    PieceAsk ask;
    size_t number = 0;
    {
      SteadyLock lock(&g.mutex);
      // A silent source does not count, nor do the layers asked of it.
      int active = 0;
      std::set<int> coming;
      for (const Gathering::Asked& asked : g.asked) {
        if (asked.over || now - asked.heard >= kHedge) continue;
        ++active;
        coming.insert(asked.layers.begin(), asked.layers.end());
      }
      if (active >= kCallsAtOnce) return;
      std::vector<int> layers;
      for (const auto& [layer, bytes] : want.bytes) {
        if (layer < from.layers.first || layer >= from.layers.last ||
            g.found.contains(layer) || coming.contains(layer) ||
            !g.tried.insert({source, layer}).second) {
          continue;
        }
        layers.push_back(layer);
        AddLayer(layer, ask.layers);
        ask.bytes[layer] = bytes;
      }
      if (layers.empty()) continue;
      const Gathering::Begun& begun = g.begun[{source, layers.front()}];
      ask.begun = begun.piece;
      ask.begun_bytes = begun.bytes;
      number = g.asked.size();
      g.asked.push_back({nullptr, std::move(layers), now});
    }
    ask.address = from.address;
    if (from.address.empty()) {
      ask.address = coordinator_;
      ask.server = Role::kCoordinator;
    }
    ask.to = from.holder.incarnation;
    ask.job = want.job;
    ask.cut = want.cut;
    ask.on_chunk = [gathering, number] {
      SteadyLock lock(&gathering->mutex);
      gathering->asked[number].heard = SteadyNow();
    };
    ask.on_piece = [gathering](PiecePtr piece) {
      SteadyLock lock(&gathering->mutex);
      gathering->found.emplace(piece->piece.layer, std::move(piece));
      gathering->changed = true;
    };
    ask.on_broken = [gathering, source, layers = ask.layers](auto part,
                                                             auto... bytes) {
      gathering->OnBroken(source, layers, std::move(part), bytes...);
    };
    ask.on_done = [gathering, number,
                   holder = from.holder.worker](const absl::Status& status) {
      SteadyLock lock(&gathering->mutex);
      gathering->asked[number].over = true;
      gathering->changed = true;
      if (status.ok()) return;
      gathering->last_error =
          absl::Status(status.code(),
                       absl::StrCat(holder == kCoordinatorProcess.worker
                                        ? std::string("the coordinator")
                                        : absl::StrCat("worker ", holder.value),
                                    ": ", status.message()));
    };
    const auto call =
        std::make_shared<PieceCall>(std::move(ask), channels_, timers_);
    call->Start();
    SteadyLock lock(&g.mutex);
    g.asked[number].call = call;
  }
}

absl::StatusOr<std::vector<PiecePtr>> PieceClient::Gather(
    const PieceWant& wanted, const CancelToken& cancel) {
  PieceWant want = wanted;
  std::ranges::sort(want.sources, {}, [](const PieceSource& source) {
    return std::tie(source.holder, source.layers.first);
  });
  const auto gathering = std::make_shared<Gathering>();
  Gathering& g = *gathering;
  {
    SteadyLock lock(&g.mutex);
    for (const auto& [layer, bytes] : want.bytes) {
      if (!want.from_store) break;
      PiecePtr own = store_.Find(want.job, {want.cut, layer});
      if (own == nullptr || static_cast<int64_t>(own->size) != bytes) continue;
      g.found[layer] = std::move(own);
    }
  }
  absl::Status end;
  for (;;) {
    end = cancel.status();
    if (!end.ok()) break;
    {
      SteadyLock lock(&g.mutex);
      g.changed = false;
      if (g.found.size() == want.bytes.size()) break;
    }
    AskMore(want, SteadyNow(), gathering);
    SteadyLock lock(&g.mutex);
    const bool goes_on =
        g.changed ||
        std::ranges::count(g.asked, false, &Gathering::Asked::over) > 0;
    if (!goes_on) {
      const auto missing =
          std::find_if(want.bytes.begin(), want.bytes.end(),
                       [&g](const auto& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                         return !g.found.contains(entry.first);
                       });
      end = Unavailable("no source is left for layer ", missing->first, " of ",
                        CutText(want.cut), " of job ", want.job.value,
                        g.last_error.ok()
                            ? ""
                            : absl::StrCat(" (", g.last_error.ToString(), ")"));
      break;
    }
    g.mutex.AwaitFor(absl::Condition(&g.changed), kGatherPoll);
  }
  std::vector<std::shared_ptr<PieceCall>> calls;
  std::vector<PiecePtr> pieces;
  {
    SteadyLock lock(&g.mutex);
    // A call keeps `gathering`, so `gathering` must not keep calls.
    for (Gathering::Asked& asked : g.asked) {
      calls.push_back(std::move(asked.call));
    }
    for (const auto& [layer, piece] : g.found) pieces.push_back(piece);
  }
  for (const auto& call : calls) call->Cancel();
  PACELINE_RETURN_IF_ERROR(end);
  return pieces;
}

}  // namespace paceline
