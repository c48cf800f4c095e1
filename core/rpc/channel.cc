#include "core/rpc/channel.h"

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"
#include "core/rpc/grpc_waits.h"
#include "core/rpc/status.h"
#include "core/trust/secret.h"
#include "grpc/grpc.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/server_interceptor.h"

namespace paceline {
namespace {

constexpr int kKeepaliveTimeoutMs = 5'000;
constexpr int kDeferSeconds = 10;
// A client's first byte: of a TLS handshake, or of "PRI * HTTP/2.0".
constexpr char kTlsBegin = 0x16;
constexpr char kHttp2Begin = 'P';
constexpr absl::Duration kLongestWatch = absl::Minutes(1);

// gRPC's arguments of channels and of servers.
using Argument = std::pair<const char*, int>;
constexpr Argument kOfBoth[] = {
    {GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes},
    {GRPC_ARG_KEEPALIVE_TIME_MS, 10'000},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs},
    {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0}};
constexpr Argument kOfChannels[] = {
    {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
    // How long one attempt to connect may take (gRPC's name for it is another):
    // two retransmissions of a lost SYN.
    {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000},
    {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000},
    {GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 2'000},
    {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
    // Small frames that are written with a buffer hint leave together, up to so
    // many bytes.  Measured with bench_data_plane, 16 KiB frames: 0.83 of a
    // bare stream's throughput with gRPC's 64 KiB, 1.01 with this (2026-11).
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 512 << 10},
    // The mesh's machines see each other; a proxy sees none of them.
    {GRPC_ARG_ENABLE_HTTP_PROXY, 0},
    // gRPC would keep what was sent until it is sure; replay is ours.
    {GRPC_ARG_ENABLE_RETRIES, 0}};
constexpr Argument kOfServers[] = {
    // Below the keepalive time, or the server would hang up on our own clients.
    {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000},
    {GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsAConnection},
    // Until HTTP/2 is spoken, and without any call.
    {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000},
    {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000}};

absl::Status CannotListen(const ServerOptions& options, const HostPort& where,
                          int error) {
  const std::string change =
      absl::StrCat("choose another with ", options.flag, " HOST:PORT");
  const std::string host =
      where.host.empty() ? "this machine's addresses" : where.host;
  switch (error) {
    case EADDRINUSE:
      return Unavailable("port ", where.port, " on ", host,
                         " is in use: stop the other process or ", change);
    case EACCES:
      return Unavailable("no permission to listen on port ", where.port, " of ",
                         host, " (ports below 1024 need privileges): ", change);
    case EADDRNOTAVAIL:
      return Unavailable(host, " is not an address of this machine: ", change);
    default:
      return Unavailable("cannot listen on port ", where.port, " of ", host,
                         ": ", std::strerror(error), ": ", change);
  }
}

// A socket that listens, of our port alone; or -1 with errno.
int ListenOn(const addrinfo& address) {
  const int fd =
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  // Accepted connections have them too, as gRPC's own.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kKeepaliveTimeoutMs,
             sizeof(kKeepaliveTimeoutMs));
  // Clients speak first; the kernel keeps whoever says nothing.
  setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &kDeferSeconds,
             sizeof(kDeferSeconds));
  // Every address has a socket of its own.
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 &&
      listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int PortOf(int socket) {
  sockaddr_storage at = {};
  socklen_t size = sizeof(at);
  getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size);
  // At the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(at).sin_port);
}

// Our own sockets: gRPC tells nobody why it cannot listen, and is content with
// half of the addresses that "localhost" stands for.  `port` becomes the real
// one.
absl::StatusOr<std::vector<int>> Listen(const ServerOptions& options,
                                        const HostPort& where, int& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* addresses = nullptr;
  const bool any = where.host.empty() || where.host == "::";
  const int failed =
      getaddrinfo(any ? nullptr : where.host.c_str(),
                  absl::StrCat(where.port).c_str(), &hints, &addresses);
  if (failed != 0) {
    return Unavailable("cannot look up host '", where.host, "' of ",
                       options.flag, " ", options.listen, ": ",
                       gai_strerror(failed), ": write its IP address");
  }

  std::vector<int> sockets;
  port = where.port;
  int error = 0;
  for (const addrinfo* a = addresses; a != nullptr; a = a->ai_next) {
    // At the same place in both families.
    reinterpret_cast<sockaddr_in*>(a->ai_addr)->sin_port = htons(port);
    const int fd = ListenOn(*a);
    if (fd >= 0) {
      sockets.push_back(fd);
      port = PortOf(fd);
    } else if (error != EADDRINUSE) {
      error = errno;
    }
  }
  freeaddrinfo(addresses);

  // One address less is fine (no IPv6 here); one that somebody else holds is
  // not: half of the clients would talk to them.
  if (!sockets.empty() && error != EADDRINUSE) return sockets;
  for (const int fd : sockets) close(fd);
  return CannotListen(options, where, error);
}

// Names are looked up as by every other program of the machine: gRPC's own
// resolver (c-ares) knows neither mDNS ("pi-1.local") nor nsswitch.conf.  gRPC
// reads this when it starts; before main() there is no thread yet that could
// read the environment meanwhile.
const int kSystemResolver =
    setenv("GRPC_DNS_RESOLVER", "native", /*overwrite=*/0);

// Shows the process's secret with every call.
class SecretShown final : public grpc::ClientContext::GlobalCallbacks {
 public:
  void DefaultConstructor(grpc::ClientContext* context) override {
    if (!UsedSecret().empty()) context->AddMetadata(kSecretKey, UsedSecret());
  }
  void Destructor(grpc::ClientContext* /*context*/) override {}
};

// Before the first channel or server.  Starts gRPC for the life of the process:
// when its last object went, it would join a thread that polls for up to 10 s
// after a large write (measured 2026-11-21 with gRPC 1.51: one exit in ten).
void StartGrpc() {
  static const bool started = [] {
    // No question: without a use the linker would leave it out.
    (void)GrpcWaitsSteadily();
    (void)kSystemResolver;
    grpc_init();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ClientContext::SetGlobalCallbacks(new SecretShown);
    return true;
  }();
  (void)started;
}

namespace experimental = grpc::experimental;

void EndCall(grpc::ServerContextBase& context, const absl::Status& why) {
  const grpc::Status status = ToGrpc(why);
  grpc_call_cancel_with_status(
      context.c_call(), static_cast<grpc_status_code>(status.error_code()),
      status.error_message().c_str(), nullptr);
}

// One Health/Watch.  gRPC's own service would keep it for ever.
class BoundedWatch final : public experimental::Interceptor {
 public:
  explicit BoundedWatch(grpc::ServerContextBase& context)
      : place_(HealthWatches().Enter(context.peer())) {
    if (!place_.ok()) {
      EndCall(context, place_.status());
      return;
    }
    deadline_.emplace(kLongestWatch, [&context] {
      EndCall(context, DeadlineExceeded("a watch ends after ",
                                        absl::FormatDuration(kLongestWatch),
                                        ": watch again"));
    });
  }

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            experimental::InterceptionHookPoints::POST_RECV_CLOSE)) {
      deadline_.reset();
    }
    methods->Proceed();
  }

 private:
  const absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place_;
  std::optional<CallDeadline> deadline_;  // while the call is open
};

std::unique_ptr<Listener::Call> SeeCall(grpc::ServerContextBase& context) {
  return Listener::OnCall(ConnectionOf(*context.auth_context()),
                          context.peer());
}

// A unary call of a stranger, which Listener counts until gRPC drops it: all of
// its answer has left then.  Or any call of a synchronous service.
class CountedCall final : public experimental::Interceptor {
 public:
  // seen: null where that is still to come
  CountedCall(grpc::ServerContextBase& context,
              std::unique_ptr<Listener::Call> seen)
      : unseen_(seen == nullptr ? &context : nullptr), seen_(std::move(seen)) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Point = experimental::InterceptionHookPoints;
    if (unseen_ != nullptr && methods->QueryInterceptionHookPoint(
                                  Point::POST_RECV_INITIAL_METADATA)) {
      seen_ = SeeCall(*std::exchange(unseen_, nullptr));
    }
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE)) {
      answer_bytes_ = methods->GetSerializedSendMessage()->Length();
    }
    if (seen_ != nullptr &&
        methods->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      seen_->OnAnswer(static_cast<int64_t>(answer_bytes_));
    }
    methods->Proceed();
  }

 private:
  grpc::ServerContextBase* unseen_;
  std::unique_ptr<Listener::Call> seen_;  // null: no stranger's
  size_t answer_bytes_ = 0;
};

// Sees every call when its handler is about to have it.  Thread-safe.
class CallEntry final : public experimental::ServerInterceptorFactoryInterface {
 public:
  // Null for most: an interceptor costs time for each message.
  experimental::Interceptor* CreateServerInterceptor(
      experimental::ServerRpcInfo* call) override {
    grpc::ServerContextBase& context = *call->server_context();
    // That of a synchronous service knows its call a little later.
    if (context.c_call() == nullptr) return new CountedCall(context, nullptr);
    std::unique_ptr<Listener::Call> seen = SeeCall(context);
    if (absl::string_view(call->method()) == kHealthWatch) {
      return new BoundedWatch(context);
    }
    // Streams have bounds of their own.
    const bool is_unary =
        call->type() == experimental::ServerRpcInfo::Type::UNARY;
    return is_unary && seen != nullptr
               ? new CountedCall(context, std::move(seen))
               : nullptr;
  }
};

// A thousand workers need more open files than the usual soft limit.
void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// gRPC 1.51 has one message size a server, none a method; Listener has the
// limits for connections.  An age limit would end our long streams.
void SetLimits(grpc::ServerBuilder& builder, const ServerOptions& options) {
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  for (const auto& [name, value] : kOfBoth) {
    builder.AddChannelArgument(name, value);
  }
  for (const auto& [name, value] : kOfServers) {
    builder.AddChannelArgument(name, value);
  }
  // Nobody compresses, and a small message could stand for a large one.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  grpc::ResourceQuota quota("server");
  quota.Resize(options.memory_bytes);
  builder.SetResourceQuota(quota);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           Role server) {
  StartGrpc();
  return MakeChannel(address, CredentialsTo(server));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials) {
  StartGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  for (const auto& [name, value] : kOfBoth) arguments.SetInt(name, value);
  for (const auto& [name, value] : kOfChannels) arguments.SetInt(name, value);
  arguments.SetSslTargetNameOverride(kTlsName);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

void BoundServer::End::operator()(grpc::Server* server) {
  listener = nullptr;
  delete server;
}

void BoundServer::Shutdown(absl::Duration patience) {
  server.get_deleter().listener = nullptr;
  server->Shutdown(DeadlineAfter(patience));
  server->Wait();
}

absl::StatusOr<BoundServer> StartServer(
    const ServerOptions& options, const std::vector<grpc::Service*>& services) {
  PACELINE_ASSIGN_OR_RETURN(const HostPort where,
                            ParseHostPort(options.listen));
  if (!options.insecure && !TlsIsUsed() && !IsLoopback(where.host)) {
    return PermissionDenied(
        "refusing to listen on ", options.listen,
        ", which other machines can reach, without TLS: ", options.with_tls,
        ", add --insecure if you trust the network, or stay on this machine "
        "with ",
        options.flag, " 127.0.0.1:", where.port);
  }
  BoundServer bound;
  bound.host = where.host;
  PACELINE_ASSIGN_OR_RETURN(const std::vector<int> sockets,
                            Listen(options, where, bound.port));

  RaiseFileLimit();
  StartGrpc();
  grpc::ServerBuilder builder;
  if (options.fixed_window_bytes > 0) {
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                               options.fixed_window_bytes);
  }
  SetLimits(builder, options);
  std::vector<std::unique_ptr<experimental::ServerInterceptorFactoryInterface>>
      entry;
  entry.push_back(std::make_unique<CallEntry>());
  builder.experimental().SetInterceptorCreators(std::move(entry));
  for (grpc::Service* service : services) builder.RegisterService(service);
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  // Shared with the listener, whose function must be copyable.
  const std::shared_ptr<Acceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(
          decltype(builder.experimental())::ExternalConnectionType::FROM_FD,
          ServerCredentials());
  grpc::Server* const server = builder.BuildAndStart().release();
  PACELINE_CHECK(server != nullptr, "gRPC makes no server");
  const auto accepted = [acceptor](int fd) {
    Acceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  const char first = TlsIsUsed() ? kTlsBegin : kHttp2Begin;
  bound.server = {server,
                  {std::make_shared<Listener>(sockets, first, accepted)}};
  return bound;
}

}  // namespace paceline
