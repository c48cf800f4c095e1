// The interface through which a worker gets pieces from others.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/cluster/run_order.h"
#include "core/os/cancel_token.h"
#include "core/recover/cut.h"
#include "worker/pipeline/piece_store.h"

namespace paceline {

// Pieces of one cut.
struct PieceWant {
  JobId job;
  Cut cut;
  std::map<int, int64_t> bytes;  // [layer]: all that are wanted
  std::vector<PieceSource> sources;
};

// Thread-safe.
class PieceExchange {
 public:
  virtual ~PieceExchange() = default;

  // The pieces of a cut, by layer: from this worker's store, else from the
  // sources, by holder, from two of them at once.  Blocks.
  // Errors: Unavailable  no source is left for a layer: says which, and what
  //                      the last one answered
  //         cancel.status()
  virtual absl::StatusOr<std::vector<PiecePtr>> Gather(
      const PieceWant& want, const CancelToken& cancel) = 0;

  // From now on these are copied into the store, and no others.
  virtual void Follow(const std::vector<FollowOrder>& orders) = 0;
};

}  // namespace paceline
