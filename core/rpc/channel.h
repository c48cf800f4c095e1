// The one place where channels and servers are made: keepalive, limits and
// credentials are the same everywhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"

namespace paceline {

// Must be equal on both sides of an Attach stream.
constexpr int kProtocolVersion = 1;

// A frame may be large; a control message may not.
constexpr int kMaxFrameBytes = 1 << 30;
constexpr int kMaxMessageBytes = 16 << 20;

// Keepalive as NOTES found out: a pulled cable is noticed in 15 s instead of
// 15 minutes.  Connects when first used; reconnects with backoff of at most
// 2 s.  max_receive_bytes: kMaxFrameBytes or kMaxMessageBytes.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           int max_receive_bytes);

struct ServerOptions {
  std::string listen;     // host:port, port 0 for any
  bool insecure = false;  // off loopback without TLS only with this
  int max_receive_bytes = kMaxMessageBytes;
  std::string flag = "--listen";  // named in error messages
};

// A running server and where it really listens.
struct BoundServer {
  std::unique_ptr<grpc::Server> server;
  std::string host;  // as in options.listen
  int port = 0;
};

// Starts a server with `services`, which outlive it.  The port is ours alone
// (no SO_REUSEPORT).
// Errors:
//   InvalidArgument   listen is not host:port
//   PermissionDenied  off loopback without insecure
//   Unavailable       the port is in use; the message says what to change
absl::StatusOr<BoundServer> StartServer(
    const ServerOptions& options, const std::vector<grpc::Service*>& services);

struct HostPort {
  std::string host;
  int port = 0;
};
// "host:port", "[::1]:7400", ":7400".  Errors: InvalidArgument.
absl::StatusOr<HostPort> ParseHostPort(const std::string& address);
bool IsLoopback(const std::string& host);

}  // namespace paceline
