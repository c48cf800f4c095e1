// PieceClient gets pieces from other workers (Stage.Pieces): those of a cut
// before a run begins there, and new ones as they are deposited.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "worker/pipeline/piece_store.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// Thread-safe.  Owns one thread ("pieces"), which repeats failed calls.
class PieceClient final : public PieceExchange {
 public:
  // After failing for this long, a follower declares that it takes no pieces,
  // because the job would otherwise wait for it.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  //   store        outlives this
  //   coordinator  address used for sources without an address
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

  void Connect(const std::shared_ptr<Following>& following);
  void OnFollowed(const std::shared_ptr<Following>& following, PiecePtr piece);
  // Logs it once, until a piece is taken.
  void SayRefused(Following& following, const absl::Status& why);
  void OnEnded(const std::shared_ptr<Following>& following,
               const absl::Status& status);
  // Asks sources for missing pieces while fewer than kCallsAtOnce calls are
  // active.
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
