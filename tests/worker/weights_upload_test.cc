// UploadWeights() against a coordinator whose calls end as the test says.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "gtest/gtest.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "worker/transport/grpc_run_factory.h"

namespace paceline {
namespace {

// How a call ends after so many pieces; 0: after all.
struct Scene {
  int pieces = 0;
  grpc::StatusCode end = grpc::StatusCode::OK;
  bool stands_still = false;  // does not end before the worker gives it up
};

// Plays one scene a call; after the last one all calls are taken whole.
class ScriptedCoordinator final : public v1::Coordinator::Service {
 public:
  explicit ScriptedCoordinator(std::vector<Scene> scenes)
      : scenes_(std::move(scenes)) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    auto server = StartServer(options, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = MakeChannel(absl::StrCat("127.0.0.1:", server_.port));
  }
  ~ScriptedCoordinator() override {
    server_.server->Shutdown(DeadlineAfter(absl::ZeroDuration()));
    server_.server->Wait();
  }

  std::shared_ptr<grpc::Channel> channel() { return channel_; }
  // All that was received, however the calls ended.
  std::map<std::string, std::string> tensors() const {
    absl::MutexLock lock(&mutex_);
    return tensors_;
  }
  // By call that brought something: where its first piece began
  // ("name offset").
  std::vector<std::string> beginnings() const {
    absl::MutexLock lock(&mutex_);
    return beginnings_;
  }

 private:
  // The scene of this call; a call that brought nothing counts for none.
  Scene Take(const v1::WeightsPiece& piece, bool first) {
    absl::MutexLock lock(&mutex_);
    if (first) {
      beginnings_.push_back(
          absl::StrCat(piece.tensor(), " ", piece.offset_bytes()));
    }
    std::string& tensor = tensors_[piece.tensor()];
    const size_t end = piece.offset_bytes() + piece.data().size();
    tensor.resize(std::max(tensor.size(), end));
    tensor.replace(piece.offset_bytes(), piece.data().size(), piece.data());
    const size_t call = beginnings_.size() - 1;
    return call < scenes_.size() ? scenes_[call] : Scene{};
  }

  grpc::Status UploadWeights(grpc::ServerContext* context,
                             grpc::ServerReader<v1::WeightsPiece>* reader,
                             v1::WeightsReceipt* receipt) override {
    Scene scene;
    int pieces = 0;
    for (v1::WeightsPiece piece; reader->Read(&piece);) {
      scene = Take(piece, pieces++ == 0);
      receipt->set_bytes(receipt->bytes() + piece.data().size());
      if (pieces == scene.pieces) break;
    }
    while (scene.stands_still && !context->IsCancelled()) {
      std::this_thread::yield();
    }
    return {scene.end, "as the test says"};
  }

  const std::vector<Scene> scenes_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> tensors_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> beginnings_ ABSL_GUARDED_BY(mutex_);
  BoundServer server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TensorPart Filled(const std::string& name, int64_t bytes) {
  TensorPart part{name, Tensor::Allocate(DType::kU8, {bytes})};
  for (int64_t i = 0; i < bytes; ++i) {
    part.tensor.data.get()[i] = static_cast<uint8_t>(i * 31 + bytes);
  }
  return part;
}

std::string BytesOf(const TensorPart& part) {
  return {reinterpret_cast<const char*>(part.tensor.data.get()),
          static_cast<size_t>(part.tensor.bytes())};
}

const Fence kFence = {JobId{1}, 1, 1};

// A call for each piece.
constexpr UploadPace kOnePieceACall = {.call = absl::ZeroDuration()};

// On a slow link, one deadline ended the whole upload,
// which then began again from the first tensor.
TEST(WeightsUpload, GoesOnAfterABreakFromTheLastReceipt) {
  const std::vector<TensorPart> parts = {Filled("a", 1000),
                                         Filled("b", 3 * kUploadChunkBytes)};
  ScriptedCoordinator coordinator(
      {{.pieces = 0},
       {.pieces = 0},
       {.pieces = 1, .end = grpc::StatusCode::UNAVAILABLE}});

  const absl::Status uploaded = UploadWeights(
      coordinator.channel(), kFence, parts, CancelToken(), kOnePieceACall);

  EXPECT_TRUE(uploaded.ok()) << uploaded;
  const auto offset = [](int pieces) {
    return absl::StrCat("b ", pieces * kUploadChunkBytes);
  };
  EXPECT_EQ(coordinator.beginnings(),
            (std::vector<std::string>{"a 0", offset(0), offset(1), offset(1),
                                      offset(2)}));
  EXPECT_EQ(coordinator.tensors().at("a"), BytesOf(parts[0]));
  EXPECT_EQ(coordinator.tensors().at("b"), BytesOf(parts[1]));
}

// Nothing ended a call that stood still but the deadline
// for the whole.
TEST(WeightsUpload, ACallThatStandsStillIsGivenUpForAnother) {
  const std::vector<TensorPart> parts = {Filled("a", 1000)};
  ScriptedCoordinator coordinator({{.pieces = 1, .stands_still = true}});

  const absl::Status uploaded = UploadWeights(
      coordinator.channel(), kFence, parts, CancelToken(),
      {.call = absl::Seconds(5), .deadline = absl::Milliseconds(200)});

  EXPECT_TRUE(uploaded.ok()) << uploaded;
  EXPECT_EQ(coordinator.beginnings(), (std::vector<std::string>(2, "a 0")));
}

TEST(WeightsUpload, OneCallTakesAllThatGoesOutInItsTime) {
  const std::vector<TensorPart> parts = {Filled("a", 1000),
                                         Filled("b", 3 * kUploadChunkBytes)};
  ScriptedCoordinator coordinator({});

  const absl::Status uploaded =
      UploadWeights(coordinator.channel(), kFence, parts, CancelToken(),
                    {.call = absl::InfiniteDuration()});

  EXPECT_TRUE(uploaded.ok()) << uploaded;
  EXPECT_EQ(coordinator.beginnings(), std::vector<std::string>{"a 0"});
  EXPECT_EQ(coordinator.tensors().at("b"), BytesOf(parts[1]));
}

TEST(WeightsUpload, WhatTheCoordinatorRefusesIsNotSentAgain) {
  ScriptedCoordinator coordinator(
      {{.pieces = 1, .end = grpc::StatusCode::ABORTED}});

  const absl::Status uploaded =
      UploadWeights(coordinator.channel(), kFence, {Filled("a", 1000)},
                    CancelToken(), kOnePieceACall);

  EXPECT_EQ(uploaded.code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace paceline
