// A plane with its server, and senders of whatever bytes, for tests.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "grpcpp/impl/codegen/sync_stream.h"

namespace paceline {

// Plane: DataPlane, RoundPlane.  Thread-compatible.
template <typename Plane, typename Options>
class PlaneServer {
 public:
  explicit PlaneServer(const Options& options = {}) : plane(options) {
    StartServerOn(0);
  }
  ~PlaneServer() { Stop(); }

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
    server_.server->Shutdown(DeadlineAfter(absl::ZeroDuration()));
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

  Plane plane;

 private:
  BoundServer server_;
};

// A sender that writes whatever bytes it is told to, and reads each Answer.
template <typename Answer>
class RawStream {
 public:
  RawStream(const std::string& address, const char* method)
      : channel_(MakeChannel(address)) {
    context_.set_deadline(DeadlineAfter(absl::Seconds(60)));
    using Factory =
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, Answer>;
    stream_.reset(Factory::Create(
        channel_.get(),
        grpc::internal::RpcMethod(
            method, grpc::internal::RpcMethod::BIDI_STREAMING, channel_),
        &context_));
  }

  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return stream_->Write(grpc::ByteBuffer(&slice, 1));
  }
  bool Read(Answer* answer) { return stream_->Read(answer); }
  // The receiver ends the stream with this.
  absl::Status End() {
    stream_->WritesDone();
    return AwaitEnd();
  }
  // The same of a receiver that does so by itself.
  absl::Status AwaitEnd() {
    for (Answer answer; Read(&answer);) {
    }
    return FromGrpc(stream_->Finish());
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, Answer>> stream_;
};

}  // namespace paceline
