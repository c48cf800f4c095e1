// Calls that a client leaves open, without regard for their types.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/rpc/tls.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/channel_arguments.h"
#include "gtest/gtest.h"

namespace paceline {

inline constexpr char kCheckHealth[] = "/grpc.health.v1.Health/Check";

// A channel that takes 5 bytes of an answer which nobody reads, fewer than that
// of kCheckHealth has.
inline std::shared_ptr<grpc::Channel> DeafChannel(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetSslTargetNameOverride(kTlsName);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

// Thread-compatible.
class OpenCalls {
 public:
  ~OpenCalls() {
    CancelAll();
    queue_.Shutdown();
    while (TakeEnd()) {
    }
  }

  // whole: the call gets its message, an empty one.
  void Open(const std::shared_ptr<grpc::Channel>& channel,
            const std::string& method, bool whole) {
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    call.stream =
        grpc::GenericStub(channel).PrepareCall(&call.context, method, &queue_);
    call.stream->StartCall(nullptr);
    TakeStep();
    if (whole) {
      const grpc::Slice empty;
      call.stream->WriteLast(grpc::ByteBuffer(&empty, 1), grpc::WriteOptions(),
                             nullptr);
      TakeStep();
    }
    call.stream->Finish(&call.status, &call);
    ++open_;
  }

  // Waits until no more than `left` calls are open.
  void AwaitAllBut(int left) {
    while (open_ > left && TakeEnd()) {
    }
    EXPECT_EQ(open_, left);
  }

  // How many calls have ended with each code, once all were cancelled.
  std::map<grpc::StatusCode, int> Ends() {
    CancelAll();
    AwaitAllBut(0);
    std::map<grpc::StatusCode, int> ends;
    for (const auto& call : calls_) ++ends[call->status.error_code()];
    return ends;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::Status status;
  };

  void CancelAll() {
    for (const auto& call : calls_) call->context.TryCancel();
  }
  // An end that comes first is counted.
  void TakeStep() {
    while (TakeOne() != nullptr) {
    }
  }
  bool TakeEnd() { return TakeOne() != nullptr; }
  void* TakeOne() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return nullptr;
    if (tag != nullptr) --open_;
    return tag;
  }

  std::vector<std::unique_ptr<Call>> calls_;
  int open_ = 0;
  grpc::CompletionQueue queue_;
};

// More than 64 calls of Health/Watch, 6 on each channel: 4 of one and 64 of all
// stay open.  channels: 20, each a new one
template <typename MakeChannel>
void CheckThatHealthWatchesAreFew(const MakeChannel& channel) {
  OpenCalls calls;
  constexpr int kChannels = 20;
  for (int i = 0; i < kChannels; ++i) {
    const auto own = channel();
    for (int j = 0; j < 6; ++j) {
      calls.Open(own, "/grpc.health.v1.Health/Watch", true);
    }
  }
  calls.AwaitAllBut(64);

  auto ends = calls.Ends();

  EXPECT_EQ(ends[grpc::StatusCode::CANCELLED], 64);
  EXPECT_EQ(ends[grpc::StatusCode::RESOURCE_EXHAUSTED], kChannels * 6 - 64);
}

// Calls without a message, or with one where the channel takes no answer: 4 of
// each channel and 256 besides stay open.
template <typename MakeChannel>
void CheckThatOpenCallsAreFew(const MakeChannel& channel,
                              const std::string& method, bool whole = false) {
  OpenCalls calls;
  constexpr int kChannels = 12;
  constexpr int kMost = 4 * kChannels + 256;
  std::vector<std::shared_ptr<grpc::Channel>> all;
  for (int i = 0; i < kChannels; ++i) {
    all.push_back(channel());
    for (int j = 0; j < 30; ++j) calls.Open(all.back(), method, whole);
  }
  calls.AwaitAllBut(kMost);

  auto ends = calls.Ends();

  EXPECT_EQ(ends[grpc::StatusCode::CANCELLED], kMost);
  EXPECT_EQ(ends[grpc::StatusCode::RESOURCE_EXHAUSTED], kChannels * 30 - kMost);
}

}  // namespace paceline
