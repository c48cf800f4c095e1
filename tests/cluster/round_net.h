// Round planes with their servers, for tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "tests/cluster/plane_server.h"
#include "tests/support/pipeline/round_recorder.h"
#include "worker/transport/round/round_plane.h"

namespace paceline {

inline constexpr size_t kTwoChunks = kRoundChunkBytes + 100;
inline const Fence kRoundFence{JobId{3}, 1, 1};

// Thread-compatible.
class RoundNode : public PlaneServer<RoundPlane, PlaneOptions> {
 public:
  explicit RoundNode(int member, const PlaneOptions& options = {})
      : PlaneServer(options), member_(member) {}

  std::shared_ptr<RoundTransport> Open(RoundSink* sink,
                                       const Fence& fence = kRoundFence) {
    auto transport = plane.Open(fence, TestMember(member_), sink);
    PACELINE_CHECK(transport.ok(), transport.status().ToString());
    return *std::move(transport);
  }
  GroupWorker worker() const {
    return {TestMember(member_), absl::StrCat("w", member_), address()};
  }

 private:
  const int member_;
};

class RpcRoundNet final : public RoundNet {
 public:
  explicit RpcRoundNet(const std::vector<RoundSink*>& sinks) {
    for (size_t i = 0; i < sinks.size(); ++i) {
      nodes_.push_back(std::make_unique<RoundNode>(static_cast<int>(i)));
      transports_.push_back(nodes_.back()->Open(sinks[i]));
    }
  }

  RoundTransport& transport(int member) override {
    return *transports_[member];
  }
  std::string address(int member) override { return nodes_[member]->address(); }
  RoundNode& node(int member) { return *nodes_[member]; }

 private:
  std::vector<std::unique_ptr<RoundNode>> nodes_;
  std::vector<std::shared_ptr<RoundTransport>> transports_;
};

}  // namespace paceline
