#include "tests/bench/bare_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/rpc/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/round_payload.h"

namespace paceline {
namespace {

// Of another service than the rounds', which is beside this one.
constexpr char kExchange[] = "/paceline.v1.Stage/Exchange";

// Ends a stream of messages when told so by an empty one, which it answers.
class Reader final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Reader() { StartRead(&message_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (message_.Length() > 1) return StartRead(&message_);
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

  grpc::ByteBuffer message_;
};

grpc::ByteBuffer MessageOf(size_t bytes) {
  const std::string memory(bytes, 'x');
  const grpc::Slice slice(memory);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

class BareExchange::Service final
    : public v1::Stage::WithRawCallbackMethod_Exchange<v1::Stage::Service> {
 public:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* /*context*/) override {
    return new Reader();
  }
};

// Thread-safe.  Kept by gRPC until OnDone().
class BareExchange::Stream final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Stream(const std::string& address)
      : channel_(MakeChannel(address, kMaxFrameBytes)),
        chunk_(MessageOf(kRoundChunkBytes)),
        end_(MessageOf(1)) {
    grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(
        channel_);
    stub.PrepareBidiStreamingCall(&context_, kExchange, {}, this);
    AddHold();
    StartCall();
  }
  ~Stream() override {
    context_.TryCancel();
    RemoveHold();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

  void Begin(int64_t bytes) {
    {
      absl::MutexLock lock(&mutex_);
      left_ = bytes;
      answered_ = false;
    }
    StartRead(&answer_);
    Next();
  }
  void AwaitAnswer() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&answered_));
  }

 private:
  // A ByteBuffer is empty once it was written: another one over its slices.
  void Next() {
    {
      absl::MutexLock lock(&mutex_);
      if (left_ < 0) return;
      const auto chunk = static_cast<int64_t>(kRoundChunkBytes);
      message_ = left_ > 0 ? chunk_ : end_;
      left_ = left_ > 0 ? std::max<int64_t>(left_ - chunk, 0) : -1;
    }
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) Next();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    absl::MutexLock lock(&mutex_);
    answered_ = true;
  }
  void OnDone(const grpc::Status& /*status*/) override {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const grpc::ByteBuffer chunk_, end_;
  grpc::ClientContext context_;
  grpc::ByteBuffer message_, answer_;

  absl::Mutex mutex_;
  int64_t left_ ABSL_GUARDED_BY(mutex_) = -1;  // 0: the end; -1: nothing
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

BareExchange::BareExchange() : service_(std::make_unique<Service>()) {}

BareExchange::~BareExchange() = default;

grpc::Service* BareExchange::service() { return service_.get(); }

void BareExchange::Connect(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    streams_.push_back(std::make_unique<Stream>(address));
  }
}

void BareExchange::Send(int64_t bytes) {
  for (const auto& stream : streams_) stream->Begin(bytes);
  for (const auto& stream : streams_) stream->AwaitAnswer();
}

}  // namespace paceline
