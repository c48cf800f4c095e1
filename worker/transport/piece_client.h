// PieceClient gets pieces from other workers (Stage.Pieces): those of a cut for
// a run that is to begin there, and new ones as they are deposited.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/cancel_token.h"
#include "core/base/clock.h"
#include "core/rpc/certificates.h"
#include "worker/pipeline/piece_exchange.h"
#include "worker/pipeline/piece_store.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

class PieceCall;

// One call asks for this, and hands the answer to these functions.
struct PieceAsk {
  std::string address;
  Role server = Role::kWorker;
  Incarnation to;
  JobId job;
  // The cut, or of whom follows the attempt of the run.
  Cut cut;
  bool follows = false;
  std::vector<LayerRange> layers;
  // [layer]: of how many bytes a piece is; not there: not known.
  std::map<int, int64_t> bytes = {};
  // As far as the first layer came before; null: nothing did.
  std::shared_ptr<StoredPiece> begun = nullptr;
  size_t begun_bytes = 0;
  // Called on gRPC's threads, one at a time, without a lock.
  std::function<void()> on_chunk = nullptr;
  // Asked before memory is taken for so many bytes; false: it is left out.
  std::function<bool(const Piece&, int64_t bytes)> admit = nullptr;
  std::function<void(PiecePtr)> on_piece;
  // Before the last call, where the connection broke after so many bytes.
  //   part  of these, the first ones of a piece; null: none are
  std::function<void(std::shared_ptr<StoredPiece> part, size_t part_bytes,
                     int64_t received)>
      on_broken = nullptr;
  // The last call.  OK: all pieces of the cut have come.
  std::function<void(absl::Status)> on_done;
};

// Thread-safe.  Owns one thread ("pieces"), which opens calls again.
class PieceClient final : public PieceExchange {
 public:
  // After failing for so long, a follower says that it takes no pieces: else
  // the job would wait for them.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  //   store        outlives this
  //   coordinator  the address of sources that name none
  explicit PieceClient(PieceStore& store, std::string coordinator = {},
                       absl::Duration patience = kPatience);
  ~PieceClient() override;  // Shutdown()

  // PieceExchange.
  absl::StatusOr<std::vector<PiecePtr>> Gather(
      const PieceWant& want, const CancelToken& cancel) override;
  void Follow(const std::vector<FollowOrder>& orders) override;

  // Ends all calls; safe to repeat.
  void Shutdown();

 private:
  struct Following;
  struct Gathering;

  std::shared_ptr<PieceCall> Call(PieceAsk ask);
  void Connect(const std::shared_ptr<Following>& following);
  void OnFollowed(const std::shared_ptr<Following>& following, PiecePtr piece);
  // Says so once, until a piece is taken.
  void SayRefused(Following& following, const absl::Status& why);
  void OnEnded(const std::shared_ptr<Following>& following,
               const absl::Status& status);
  // Asks sources for what is missing where fewer than two are at it.
  void AskMore(const PieceWant& want, Instant now,
               const std::shared_ptr<Gathering>& gathering);

  PieceStore& store_;
  const std::string coordinator_;
  const absl::Duration patience_;
  const SystemClock clock_;
  CallChannels channels_;

  absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<FollowOrder, std::shared_ptr<Following>> following_
      ABSL_GUARDED_BY(mutex_);

  TimerThread timers_;
};

}  // namespace paceline
