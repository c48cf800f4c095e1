// Pieces of checkpoints over Stage.Pieces: GrpcPieceFetcher gets them from
// workers, its service hands them to workers.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/jobs/checkpoint_store.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace paceline {

// Thread-safe; one fetch at a time.
class GrpcPieceFetcher final : public PieceFetcher {
 public:
  // A holder that sends less than 64 KiB in this time is skipped.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  explicit GrpcPieceFetcher(absl::Duration patience = kPatience)
      : patience_(patience) {}

  absl::StatusOr<uint64_t> Fetch(
      const HeldPiece& ask,
      absl::FunctionRef<absl::Status(absl::string_view)> take) override;
  void Cancel() override;

 private:
  const absl::Duration patience_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;

  // The last holder's, for Fetch() only: it asks for a stage's layers in turn.
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
};

// Outlived by the coordinator.
std::unique_ptr<grpc::Service> MakePieceService(Coordinator& coordinator);

}  // namespace paceline
