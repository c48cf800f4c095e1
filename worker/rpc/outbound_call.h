// One try of a stream that a plane keeps open: gRPC's side of it, and when
// nothing of it is needed any more.
#pragma once

#include <memory>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/status.h"
#include "worker/rpc/plane_shared.h"

namespace paceline {

// Whose calls they are; hears of them on gRPC's threads, never on the stack of
// one who starts something.
class CallOwner {
 public:
  virtual ~CallOwner() = default;

  // The other side has said something.
  virtual void OnRead(grpc::ByteBuffer& message) = 0;
  // After a Write() or StartWritesDone(), and when nothing more can be read.
  virtual void OnWritten(bool ok) = 0;
  virtual void OnReadEnded() = 0;
  // The last one.
  virtual void OnCallDone(const grpc::Status& status) = 0;
};

// One write at a time, begun outside of reactions.  gRPC keeps the call until
// OnDone(), and a hold of its own until no further write can begin: then
// WriteTurn says that RemoveHold() is due.  Deletes itself after OnCallDone().
class OutboundCall final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // method: "/service/Method", of raw bytes.
  OutboundCall(std::shared_ptr<CallOwner> owner,
               std::shared_ptr<PlaneShared> shared,
               const std::shared_ptr<grpc::Channel>& channel,
               const char* method);

  void Start();
  void Cancel() { context_.TryCancel(); }

  // Not while a write is under way.
  void Write(grpc::ByteBuffer bytes, grpc::WriteOptions options = {});
  // What was written; in OnWritten().
  void Release() { out_.Clear(); }

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { owner_->OnWritten(ok); }
  void OnWritesDoneDone(bool ok) override { owner_->OnWritten(ok); }
  void OnDone(const grpc::Status& status) override;

  // Shared with the run and with closures that wait for their time.
  const std::shared_ptr<CallOwner> owner_;
  const std::shared_ptr<PlaneShared> shared_;
  grpc::ClientContext context_;
  grpc::ByteBuffer read_;
  grpc::ByteBuffer out_;
};

// Whether a call is being written to.  Guarded by its owner's lock.
class WriteTurn {
 public:
  bool writing() const { return writing_; }
  bool CanBegin() const { return !writing_ && !failed_ && !reads_ended_; }

  void Reset() { *this = {}; }  // another call
  void Begin() { writing_ = true; }
  // True: RemoveHold() is due, without the lock.
  [[nodiscard]] bool End(bool ok) {
    writing_ = false;
    failed_ = failed_ || !ok;
    return reads_ended_;
  }
  [[nodiscard]] bool EndReads() {
    reads_ended_ = true;
    return !writing_;
  }

 private:
  bool writing_ = false;
  bool failed_ = false;
  bool reads_ended_ = false;
};

}  // namespace paceline
