// PieceServer answers Stage.Pieces: it sends what the piece store holds, while
// no frame of a run waits to be sent.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/rpc/stream_limit.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "worker/pipeline/piece_store.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

// A chunk as one message: the header encoded, the data a slice over the piece's
// memory, which is kept until gRPC has let go of it.
grpc::ByteBuffer EncodeChunk(const PiecePtr& piece, size_t offset,
                             size_t bytes);

// Thread-safe.  The piece store, which is in the options, outlives Shutdown().
class PieceServer : public std::enable_shared_from_this<PieceServer> {
 public:
  // busy: whether a frame waits to be sent or is being sent; called without a
  // lock.
  PieceServer(std::shared_ptr<PlaneShared> shared, std::function<bool()> busy);

  // Begins to pass on what is deposited; once.
  void Start();
  // A new stream, to be returned to gRPC.
  //   peer  as gRPC calls the other side
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Accept(
      const std::string& peer, const grpc::ByteBuffer& request);
  // Ends all streams and what comes; safe to repeat.
  void Shutdown();

 private:
  class Stream;

  void OnDone(const std::shared_ptr<Stream>& stream);
  void PumpAll();

  // Constant after Start().
  const std::shared_ptr<PlaneShared> shared_;
  const std::function<bool()> busy_;
  PieceStore* const store_;  // null: nothing is held here
  int listener_ = -1;

  // Callers know this process, so they take no places of Exchange's strangers.
  StreamLimit places_;

  absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  bool pump_posted_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
