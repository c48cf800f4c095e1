#include "worker/rpc/outbound_call.h"

#include <utility>

#include "grpcpp/generic/generic_stub.h"

namespace paceline {

OutboundCall::OutboundCall(std::shared_ptr<CallOwner> owner,
                           std::shared_ptr<PlaneShared> shared,
                           const std::shared_ptr<grpc::Channel>& channel,
                           const char* method)
    : owner_(std::move(owner)), shared_(std::move(shared)) {
  shared_->channels.OnCallStarted();
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel);
  stub.PrepareBidiStreamingCall(&context_, method, {}, this);
}

void OutboundCall::Start() {
  AddHold();
  StartRead(&read_);
  StartCall();
}

void OutboundCall::Write(grpc::ByteBuffer bytes, grpc::WriteOptions options) {
  out_.Swap(&bytes);
  StartWrite(&out_, options);
}

void OutboundCall::OnReadDone(bool ok) {
  if (!ok) return owner_->OnReadEnded();
  owner_->OnRead(read_);
  StartRead(&read_);
}

void OutboundCall::OnDone(const grpc::Status& status) {
  const std::shared_ptr<PlaneShared> shared = shared_;
  owner_->OnCallDone(status);
  delete this;
  shared->timers.Run([shared] { shared->channels.DropUnused(); });
  shared->channels.OnCallEnded();
}

}  // namespace paceline
