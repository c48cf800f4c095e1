// Round planes with their servers, for tests.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/rpc/channel.h"
#include "tests/support/round_recorder.h"
#include "worker/rpc/round_plane.h"

namespace paceline {

inline const Fence kRoundFence{JobId{3}, 1, 1};

// Thread-compatible.
class RoundNode {
 public:
  explicit RoundNode(int member, const PlaneOptions& options = {})
      : member_(member), plane(options) {
    StartServerOn(0);
  }
  ~RoundNode() { Stop(); }

  std::unique_ptr<RoundTransport> Open(RoundSink* sink,
                                       const Fence& fence = kRoundFence) {
    auto transport = plane.Open(fence, TestMember(member_), sink);
    PACELINE_CHECK(transport.ok(), transport.status().ToString());
    return *std::move(transport);
  }

  void StartServerOn(int port) {
    ServerOptions options;
    options.listen = absl::StrCat("127.0.0.1:", port);
    auto bound = StartServer(options, {plane.service()});
    PACELINE_CHECK(bound.ok(), bound.status().ToString());
    server_ = *std::move(bound);
  }
  // Breaks all connections, as the end of the process does.
  void StopServer() {
    if (server_.server == nullptr) return;
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server = nullptr;
  }
  void Stop() {
    plane.Shutdown();
    StopServer();
  }

  int port() const { return server_.port; }
  std::string address() const {
    return absl::StrCat("127.0.0.1:", server_.port);
  }
  GroupWorker worker() const {
    return {TestMember(member_), absl::StrCat("w", member_), address()};
  }

 private:
  const int member_;

 public:
  RoundPlane plane;

 private:
  BoundServer server_;
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
  std::vector<std::unique_ptr<RoundTransport>> transports_;
};

}  // namespace paceline
