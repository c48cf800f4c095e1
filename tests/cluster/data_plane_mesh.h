// Links of one run for tests: in memory, or DataPlanes over loopback.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "tests/cluster/plane_server.h"
#include "tests/support/pipeline/memory_link.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {

struct MeshSpec {
  std::vector<int> worker_of = {0, 1};  // of replicas the first
  Shape sample_shape = {4};             // the same at every boundary
  int64_t micro_batch = 4;
  int bound = 2;
  Fence fence{JobId{1}, 1, 1};
  std::vector<Tie> ties = {};
  Codec codec = Codec::kRaw;  // between planes
  // [stages], or empty: the other workers of a stage, and their turns.
  std::vector<std::vector<int>> replicas = {};
  std::vector<RouteTable> routes = {};
  std::function<void()> on_links = nullptr;  // of all workers
};

// [stages][replicas].
inline std::vector<std::vector<int>> HoldersOf(const MeshSpec& spec) {
  std::vector<std::vector<int>> holders;
  for (size_t stage = 0; stage < spec.worker_of.size(); ++stage) {
    holders.push_back({spec.worker_of[stage]});
    if (spec.replicas.empty()) continue;
    holders.back().insert(holders.back().end(), spec.replicas[stage].begin(),
                          spec.replicas[stage].end());
  }
  return holders;
}

inline int WorkersOf(const MeshSpec& spec) {
  int most = 0;
  for (const std::vector<int>& stage : HoldersOf(spec)) {
    most = std::max(most, *std::max_element(stage.begin(), stage.end()));
  }
  return most + 1;
}

inline ScheduleBounds BoundsOf(const MeshSpec& spec) {
  ScheduleBounds bounds;
  bounds.activation_frames.assign(spec.worker_of.size() - 1, spec.bound);
  bounds.gradient_frames = bounds.activation_frames;
  return bounds;
}

class LinkMesh {
 public:
  virtual ~LinkMesh() = default;
  virtual Link& link(int worker) = 0;
  virtual void Drop(int worker) = 0;
};

class MemoryLinkMesh final : public LinkMesh {
 public:
  explicit MemoryLinkMesh(const MeshSpec& spec) {
    auto links = MakeMemoryLinks(
        {HoldersOf(spec), BoundsOf(spec), spec.fence, spec.ties, spec.routes});
    PACELINE_CHECK(links.ok(), links.status().ToString());
    links_ = *std::move(links);
  }
  Link& link(int worker) override { return *links_[worker]; }
  void Drop(int worker) override { links_[worker] = nullptr; }

 private:
  std::vector<std::unique_ptr<Link>> links_;
};

using PlaneNode = PlaneServer<DataPlane, PlaneOptions>;

inline RunWiring WiringOf(const MeshSpec& spec, int self,
                          const std::vector<std::string>& addresses) {
  RunWiring wiring;
  wiring.fence = spec.fence;
  wiring.self = WorkerId{self};
  const std::vector<std::vector<int>> holders = HoldersOf(spec);
  for (size_t stage = 0; stage < holders.size(); ++stage) {
    StageWiring& into = wiring.stages.emplace_back();
    for (const int worker : holders[stage]) {
      into.replicas.push_back({WorkerId{worker}, addresses[worker]});
    }
    if (!spec.routes.empty()) into.route = spec.routes[stage];
  }
  wiring.boundaries.assign(spec.worker_of.size() - 1,
                           {{DType::kF32, spec.sample_shape}});
  wiring.ties = spec.ties;
  wiring.codec = spec.codec;
  wiring.micro_batch = spec.micro_batch;
  wiring.bounds = BoundsOf(spec);
  wiring.on_links = spec.on_links;
  return wiring;
}

class RpcLinkMesh final : public LinkMesh {
 public:
  explicit RpcLinkMesh(const MeshSpec& spec, const PlaneOptions& options = {}) {
    const int workers = WorkersOf(spec);
    std::vector<std::string> addresses;
    for (int worker = 0; worker < workers; ++worker) {
      nodes_.push_back(std::make_unique<PlaneNode>(options));
      addresses.push_back(nodes_.back()->address());
    }
    for (int worker = 0; worker < workers; ++worker) {
      auto run = nodes_[worker]->plane.Open(WiringOf(spec, worker, addresses));
      PACELINE_CHECK(run.ok(), run.status().ToString());
      runs_.push_back(*std::move(run));
    }
  }

  Link& link(int worker) override { return *runs_[worker].link; }
  GateClient& gate(int worker) { return *runs_[worker].gate; }
  void Drop(int worker) override { runs_[worker] = {}; }
  PlaneNode& node(int worker) { return *nodes_[worker]; }

 private:
  std::vector<std::unique_ptr<PlaneNode>> nodes_;
  std::vector<RunConnections> runs_;
};

// A frame whose bytes follow from its key.
inline Frame MakeFrame(const FrameKey& key, int64_t samples = 4,
                       const Shape& sample_shape = {4}) {
  Frame frame;
  frame.header.kind = key.kind;
  frame.header.boundary = key.boundary;
  frame.header.micro_batch = key.micro_batch;
  BatchInfo& batch = frame.header.batch;
  batch.ordinal = batch.step = key.batch;
  batch.micro_batches = key.micro_batch + 1;
  batch.samples = samples * batch.micro_batches;
  Shape shape = {samples};
  shape.insert(shape.end(), sample_shape.begin(), sample_shape.end());
  frame.tensors.push_back(Tensor::Allocate(DType::kF32, shape));
  SplitMix64 random(MixSeed({static_cast<uint64_t>(key.kind),
                             static_cast<uint64_t>(key.boundary),
                             static_cast<uint64_t>(key.batch),
                             static_cast<uint64_t>(key.micro_batch)}));
  for (float& value : frame.tensors[0].As<float>()) value = random.Unit();
  if (key.kind == FrameKind::kActivation) {
    frame.tensors.push_back(Tensor::Allocate(DType::kI64, {samples}));
    for (int64_t& label : frame.tensors[1].As<int64_t>()) {
      label = static_cast<int64_t>(random.Below(10));
    }
  }
  return frame;
}

// Empty when the frames are equal, else what differs.
inline std::string Difference(const Frame& got, const Frame& want) {
  if (KeyOf(got.header) != KeyOf(want.header)) {
    return absl::StrCat("got the ", ToText(KeyOf(got.header)), ", want the ",
                        ToText(KeyOf(want.header)));
  }
  if (got.header.batch != want.header.batch) return "the batches differ";
  if (got.tensors.size() != want.tensors.size()) return "tensor counts differ";
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    const Tensor& a = got.tensors[i];
    const Tensor& b = want.tensors[i];
    if (a.dtype != b.dtype || a.shape != b.shape) return "shapes differ";
    if (!std::equal(a.data.get(), a.data.get() + a.bytes(), b.data.get())) {
      return absl::StrCat("bytes of tensor ", i, " differ");
    }
  }
  return "";
}

inline FrameKey ActivationKey(int64_t batch, int32_t micro_batch,
                              int32_t boundary = 0) {
  return {FrameKind::kActivation, boundary, batch, micro_batch};
}
inline FrameKey GradientKey(int64_t batch, int32_t micro_batch,
                            int32_t boundary = 0) {
  return {FrameKind::kGradient, boundary, batch, micro_batch};
}

}  // namespace paceline
