// The one place where channels and servers are made: keepalive, limits and
// credentials are the same everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/rpc/listener.h"
#include "core/rpc/tls.h"
#include "grpcpp/channel.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"

namespace paceline {

// The protocol of this program.  A release raises it where programs of the last
// one would misunderstand it; a field that they can pass over does not.
constexpr int kProtocolVersion = 3;
// A coordinator still speaks this with workers; the newest that it speaks is
// its own.
constexpr int kOldestProtocol = 3;

// Bounds a message to a server, which any peer may send.  A sender cuts a
// larger one into chunks.  gRPC looks at the size when all of a message is
// there: only ServerOptions::memory_bytes bounds a message that never ends.
constexpr int kMaxRequestBytes = 4 << 20;
// Bounds an answer or an order, which only a server sends that was dialled.
constexpr int kMaxAnswerBytes = 16 << 20;
// Bounds the calls on one connection. Ours have a handful: a stream for each
// channel of a plane, and a worker's or a client's few calls.
constexpr int kMaxCallsAConnection = 32;

// All metadata of one call, with a status message of the greatest length
// (status.h).
constexpr int kMaxMetadataBytes = 64 << 10;

// A channel with a TCP connection of its own: two channels to one address
// share none, so that a data stream never waits behind another.  Connects
// when first used, past any HTTP proxy of the environment; reconnects with a
// backoff of 100 ms to 2 s.  A pulled cable is noticed in 15 s instead of 15
// minutes.  Calls are never retried behind the caller's back.  Never fails:
// calls to a wrong address end with Unavailable.
//   server       the role that its certificate must have, where this process
//                uses TLS (tls.h)
//   credentials  others than this process's
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           Role server = Role::kWorker);
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials);

struct ServerOptions {
  std::string listen;     // host:port, port 0 for any
  bool insecure = false;  // off loopback without TLS only with this
  // Bounds all that has come in and was not taken yet. Beyond it gRPC ends
  // calls with ResourceExhausted, whosever they are: the last resort.
  int64_t memory_bytes = int64_t{512} << 20;
  // Named in error messages: the option, and how to use TLS.
  std::string flag = "--listen";
  std::string with_tls =
      "join the mesh first with 'paceline-worker join HOST:PORT TOKEN'";
  // How large the receive windows are.  0: gRPC fits them to the network, for
  // which it sends a ping with each message.  Small messages then cost twice.
  int fixed_window_bytes = 0;
};

// A running server and where it really listens.
struct BoundServer {
  // Accepts nothing any more, and ends.
  struct End {
    void operator()(grpc::Server* server);
    // Shared because a deleter must be copyable.
    std::shared_ptr<Listener> listener;
  };

  // Accepts nothing any more, and ends the calls that last beyond `patience`.
  void Shutdown(absl::Duration patience);

  std::unique_ptr<grpc::Server, End> server;
  std::string host;  // as in options.listen
  int port = 0;
};

// Starts a server with `services`, which outlive it, and gRPC's own health
// service.  The port is ours alone (no SO_REUSEPORT).  What peers can make it
// hold is bounded by the limits above and by those of Listener; a connection
// that does not get as far as HTTP/2 in 10 s is closed, and one without a call
// after 5 min.  Blocks while the host is looked up.
// Errors:
//   InvalidArgument   listen is not host:port
//   PermissionDenied  off loopback without insecure
//   Unavailable       the port is in use, the address not this machine's, the
//                     host unknown; the message says what to change
absl::StatusOr<BoundServer> StartServer(
    const ServerOptions& options, const std::vector<grpc::Service*>& services);

}  // namespace paceline
