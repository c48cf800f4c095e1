// The versions of a stage's parameters while its schedule has no flush.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "worker/pipeline/version_ring.h"
#include "worker/torch/torch_layer.h"

namespace paceline {

// Each version has tensor objects of its own, never written while a graph holds
// them: that is what keeps autograd right.  (Values changed below it, by
// set_data or through the memory, give a wrong gradient and no error.)  All
// versions of a parameter share its gradient's memory, which an update reads
// right after the one backward that filled it.  What needs no gradient (running
// statistics) is shared by all versions.
//
// Lives on the compute thread.
class WeightStash {
 public:
  // Takes the layers' parameters as version 0.  `layers` and `products` outlive
  // this.  The stash tells `products` which parameters are gone.
  WeightStash(std::vector<TorchLayer>& layers, Products& products);

  // As StageEngine::UseVersion.
  absl::Status Use(int64_t version);

  // The layers compute with the version in use; returns its number, for
  // Release() after the backward.  Errors: FailedPrecondition  not made yet
  absl::StatusOr<int64_t> Begin();
  void BindNewest() { Bind(ring_.newest_payload()); }
  // For who computes once more what Begin() gave `version` for, before its
  // Release().
  void BindAgain(int64_t version) { Bind(ring_.at(version)); }
  // Once the graphs of one forward are gone.
  void Release(int64_t version);

  // Makes the next version; null: with the newest's values.  `write` gives the
  // layers' parameters that an update changes their values: from `before`, one
  // tensor a parameter in layer order, into memory with any content, or, where
  // `before` is empty, in place.  Copying first would take as long as the
  // update itself.  All others have the newest values already.
  using Write = std::function<void(absl::Span<const Tensor> before)>;
  void Update(const Write& write);

  int64_t newest() const { return ring_.newest(); }
  int versions() const { return ring_.size(); }
  int64_t bytes() const;

 private:
  // One entry a parameter, in layer order.
  struct Version {
    std::vector<Tensor> values;
    std::vector<at::Tensor> variables;  // leaves over `values`
  };

  Version Current() const;
  // A version in memory of its own.  Parameters that an update changes have no
  // values yet; the others have the newest.
  Version Next();
  void Bind(const Version& version);
  void Adopt(const Version& version);
  void Recycle(std::vector<Version> gone);

  std::vector<TorchLayer>& layers_;
  Products& products_;
  VersionRing<Version> ring_;
  // Let go and not freed: the next version's memory.
  std::vector<Version> spare_;
};

}  // namespace paceline
