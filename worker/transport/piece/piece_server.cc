#include "worker/transport/piece/piece_server.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/os/thread.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"
#include "core/transfer/wire.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/slice.h"
#include "paceline/v1/stage.pb.h"
#include "worker/transport/stream/frame_buffer.h"

namespace paceline {
namespace {

// A frame waits for at most one chunk: 2 ms at 1 Gbit/s.
constexpr size_t kPieceChunkBytes = 256 << 10;
// Interval in which a stream checks whether frames wait, and its longest wait
// for them: pieces always get 10 MiB/s.
constexpr absl::Duration kFollowPoll = absl::Milliseconds(1);
constexpr absl::Duration kLongestWait = absl::Milliseconds(25);
absl::StatusOr<PieceWish> ReadWish(const grpc::ByteBuffer& bytes,
                                   Incarnation self) {
  grpc::ByteBuffer copy = bytes;  // reading empties it
  v1::PieceRequest request;
  if (!grpc::SerializationTraits<v1::PieceRequest>::Deserialize(&copy, &request)
           .ok()) {
    return InvalidArgument("not a request for pieces");
  }
  return FromProto(request, self);
}

absl::StatusOr<std::deque<PiecePtr>> FindCut(const PieceStore& store,
                                             const PieceWish& wish) {
  std::deque<PiecePtr> found;
  for (const LayerRange& range : wish.layers) {
    for (int layer = range.first; layer < range.last; ++layer) {
      found.push_back(store.Find(wish.job, {wish.cut, layer}));
      if (found.back() != nullptr) continue;
      return NotFound("layer ", layer, " of ", CutText(wish.cut), " of job ",
                      wish.job.value, " is not held here");
    }
  }
  return found;
}

}  // namespace

grpc::ByteBuffer EncodeChunk(const PiecePtr& piece, size_t offset,
                             size_t bytes) {
  v1::PieceChunk chunk;
  chunk.set_attempt(piece->piece.cut.attempt);
  chunk.set_step(piece->piece.cut.step);
  chunk.set_layer(piece->piece.layer);
  chunk.set_total_bytes(static_cast<int64_t>(piece->size));
  chunk.set_offset(static_cast<int64_t>(offset));
  chunk.set_checksum(piece->checksum);
  std::string header = chunk.SerializeAsString();
  AppendLength(&header, v1::PieceChunk::kDataFieldNumber,
               static_cast<int64_t>(bytes));
  const grpc::Slice slices[] = {
      grpc::Slice(header),
      SharedSlice(piece->data.get() + offset, bytes, piece)};
  return {slices, 2};
}

// One answer.  Thread-safe.  gRPC keeps it until OnDone(); reactions come on
// gRPC's threads, never on a caller's stack.
class PieceServer::Stream final
    : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
      public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(std::shared_ptr<PieceServer> server)
      : server_(std::move(server)) {}

  // Called before any other thread has this object.
  void Start(const std::string& peer, const grpc::ByteBuffer& request) {
    const absl::Status begun = Begin(peer, request);
    absl::MutexLock lock(&mutex_);
    self_ = shared_from_this();
    if (!begun.ok()) EndLocked(begun);
  }

  // Begins the next write, if one may begin.
  void Pump() {
    const bool busy = server_->busy_();
    absl::MutexLock lock(&mutex_);
    if (state_ != State::kIdle) return;
    if (piece_ == nullptr && !NextPieceLocked()) return;
    const Instant now = SteadyNow();
    if (busy && written_.has_value() && now - *written_ < kLongestWait) {
      return LookLaterLocked();
    }
    written_ = now;
    const size_t bytes = std::min(kPieceChunkBytes, piece_->size - offset_);
    chunk_ = EncodeChunk(piece_, offset_, bytes);
    offset_ += bytes;
    if (offset_ == piece_->size) piece_ = nullptr;
    state_ = State::kWriting;
    StartWrite(&chunk_);
  }

  void End(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    EndLocked(why);
  }

 private:
  //   state     event                        next
  //   kIdle     a chunk is there             kWriting
  //   kWriting  written                      kIdle
  //   kIdle     all is sent, or an error     kOver
  //   kWriting  an error; then written       kEnding; kOver
  enum class State : uint8_t { kIdle, kWriting, kEnding, kOver };

  absl::Status Begin(const std::string& peer, const grpc::ByteBuffer& request) {
    PACELINE_ASSIGN_OR_RETURN(
        wish_, ReadWish(request, server_->shared_->options.incarnation));
    Listener::OnKnown(peer);
    if (server_->store_ == nullptr) {
      return NotFound("this worker holds no pieces");
    }
    PACELINE_ASSIGN_OR_RETURN(place_, server_->places_.Enter(peer));
    if (wish_.follows) return absl::OkStatus();
    PACELINE_ASSIGN_OR_RETURN(std::deque<PiecePtr> cut,
                              FindCut(*server_->store_, wish_));
    const auto size = static_cast<int64_t>(cut.front()->size);
    if (wish_.offset > 0 && wish_.offset >= size) {
      return InvalidArgument("a piece of ", size, " bytes has none from ",
                             wish_.offset, " on");
    }
    absl::MutexLock lock(&mutex_);
    offset_ = wish_.offset;
    piece_ = std::move(cut.front());
    cut.pop_front();
    cut_ = std::move(cut);
    return absl::OkStatus();
  }

  // False: there is no piece now, or all were sent and the stream is over.
  bool NextPieceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (wish_.follows) {
      PieceStore::Deposited next = server_->store_->NextDeposit(
          wish_.job, wish_.cut.attempt, wish_.layers, sent_);
      if (next.piece == nullptr) return false;
      sent_ = next.number;
      piece_ = std::move(next.piece);
    } else if (cut_.empty()) {
      EndLocked(absl::OkStatus());
      return false;
    } else {
      piece_ = std::move(cut_.front());
      cut_.pop_front();
    }
    offset_ = 0;
    return true;
  }

  void LookLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(looks_later_, true)) return;
    server_->shared_->timers.RunAfter(kFollowPoll, [weak = weak_from_this()] {
      const std::shared_ptr<Stream> self = weak.lock();
      if (self == nullptr) return;
      {
        absl::MutexLock lock(&self->mutex_);
        self->looks_later_ = false;
      }
      self->Pump();
    });
  }

  void EndLocked(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (state_ == State::kEnding || state_ == State::kOver) return;
    end_ = why;
    const bool writing = state_ == State::kWriting;
    state_ = writing ? State::kEnding : State::kOver;
    if (!writing) Finish(ToGrpc(end_));
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      const bool ending = state_ == State::kEnding;
      state_ = State::kIdle;
      if (ending || !ok) {
        return EndLocked(ending ? end_ : Cancelled("a write broke"));
      }
    }
    Pump();
  }
  void OnCancel() override { End(Cancelled("the caller has left")); }
  void OnDone() override {
    std::shared_ptr<Stream> self;
    {
      absl::MutexLock lock(&mutex_);
      self.swap(self_);
      place_ = nullptr;
    }
    server_->OnDone(self);
  }

  const std::shared_ptr<PieceServer> server_;
  PieceWish wish_;  // constant after Begin()
  std::unique_ptr<StreamLimit::Place> place_;

  absl::Mutex mutex_;
  // Unsent pieces, when a cut was asked for.
  std::deque<PiecePtr> cut_ ABSL_GUARDED_BY(mutex_);
  // follows: number of the newest one
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  PiecePtr piece_ ABSL_GUARDED_BY(mutex_);  // being sent
  size_t offset_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ByteBuffer chunk_ ABSL_GUARDED_BY(mutex_);
  std::optional<Instant> written_ ABSL_GUARDED_BY(mutex_);
  bool looks_later_ ABSL_GUARDED_BY(mutex_) = false;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  // gRPC's hold of this object.
  std::shared_ptr<Stream> self_ ABSL_GUARDED_BY(mutex_);
};

PieceServer::PieceServer(std::shared_ptr<PlaneShared> shared,
                         std::function<bool()> busy)
    : shared_(std::move(shared)),
      busy_(std::move(busy)),
      store_(shared_->options.pieces) {}

void PieceServer::Start() {
  if (store_ == nullptr) return;
  listener_ = store_->Listen([this] {
    {
      absl::MutexLock lock(&mutex_);
      if (streams_.empty() || std::exchange(pump_posted_, true)) return;
    }
    shared_->timers.Run([self = shared_from_this()] { self->PumpAll(); });
  });
}

void PieceServer::PumpAll() {
  std::set<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    pump_posted_ = false;
    streams = streams_;
  }
  for (const auto& stream : streams) stream->Pump();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PieceServer::Accept(
    const std::string& peer, const grpc::ByteBuffer& request) {
  const auto stream = std::make_shared<Stream>(shared_from_this());
  stream->Start(peer, request);
  bool refused = false;
  {
    absl::MutexLock lock(&mutex_);
    refused = shut_down_;
    streams_.insert(stream);
  }
  if (refused) stream->End(Unavailable("the worker is stopping"));
  stream->Pump();
  return stream.get();
}

void PieceServer::OnDone(const std::shared_ptr<Stream>& stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

void PieceServer::Shutdown() {
  std::set<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(shut_down_, true)) return;
    streams = streams_;
  }
  if (listener_ >= 0) store_->Unlisten(listener_);
  for (const auto& stream : streams) {
    stream->End(Unavailable("the worker is stopping"));
  }
}

}  // namespace paceline
