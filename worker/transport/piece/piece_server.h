// PieceServer answers Stage.Pieces: it sends the piece store's pieces while no
// frame of a run waits to be sent.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/rpc/listener.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "worker/pipeline/piece_store.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// Returns a chunk as one message: the encoded header, then a slice of the
// piece's memory, which stays until gRPC has released it.
grpc::ByteBuffer EncodeChunk(const PiecePtr& piece, size_t offset,
                             size_t bytes);

// Thread-safe.  The piece store in the options outlives Shutdown().
class PieceServer : public std::enable_shared_from_this<PieceServer> {
 public:
  // busy: returns whether a frame waits to be sent or is being sent; called
  // without a lock.
  PieceServer(std::shared_ptr<PlaneShared> shared, std::function<bool()> busy);

  // Starts to send newly deposited pieces to followers; once.
  void Start();
  // Returns a new stream for gRPC.
  //   peer  gRPC's name of the other side
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Accept(
      const std::string& peer, const grpc::ByteBuffer& request);
  // Ends all present and future streams; safe to repeat.
  void Shutdown();

 private:
  class Stream;

  void OnDone(const std::shared_ptr<Stream>& stream);
  void PumpAll();

  // Constant after Start().
  const std::shared_ptr<PlaneShared> shared_;
  const std::function<bool()> busy_;
  PieceStore* const store_;  // null: this worker holds no pieces
  int listener_ = -1;

  // Callers know this process, so they take no places of Exchange's strangers.
  StreamLimit places_;

  absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  bool pump_posted_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
