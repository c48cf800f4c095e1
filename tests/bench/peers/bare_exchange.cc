#include "tests/bench/peers/bare_exchange.h"

#include <array>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/rpc/channel.h"
#include "core/rpc/listener.h"
#include "grpcpp/generic/generic_stub.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {
namespace {

// Another service than the rounds', which is beside this one, has this method.
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

// Over memory that stays.
grpc::ByteBuffer MessageOf(absl::Span<uint8_t> bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size(), [](void*) {});
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

class BareExchange::Service final
    : public v1::Stage::WithRawCallbackMethod_Exchange<v1::Stage::Service> {
 public:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    Listener::OnKnown(context->peer());
    return new Reader();
  }
};

// Thread-safe.  Kept by gRPC until OnDone().
class BareExchange::Stream final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Stream(const std::string& address) : channel_(MakeChannel(address)) {
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

  void Begin(std::deque<absl::Span<uint8_t>> bytes) {
    {
      absl::MutexLock lock(&mutex_);
      left_ = std::move(bytes);
      left_.push_back(absl::MakeSpan(end_));
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
  void Next() {
    {
      absl::MutexLock lock(&mutex_);
      while (!left_.empty() && left_.front().empty()) left_.pop_front();
      if (left_.empty()) return;
      message_ = MessageOf(left_.front().subspan(0, kRoundChunkBytes));
      left_.front().remove_prefix(message_.Length());
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
  std::array<uint8_t, 1> end_ = {};  // a message of one byte
  grpc::ClientContext context_;
  grpc::ByteBuffer message_, answer_;

  absl::Mutex mutex_;
  std::deque<absl::Span<uint8_t>> left_ ABSL_GUARDED_BY(mutex_);
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
  const size_t half = static_cast<size_t>(bytes) / 2;
  memory_.resize((streams_.size() + 1) * half, 1);
  const absl::Span<uint8_t> all = absl::MakeSpan(memory_);
  const absl::Span<uint8_t> last = all.last(half);
  for (size_t i = 0; i < streams_.size(); ++i) {
    streams_[i]->Begin({all.subspan(i * half, half), last});
  }
  for (const auto& stream : streams_) stream->AwaitAnswer();
}

}  // namespace paceline
