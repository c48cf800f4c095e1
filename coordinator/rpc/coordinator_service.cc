#include "coordinator/rpc/coordinator_service.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"
#include "core/base/version.h"
#include "core/cluster/registration.h"
#include "core/os/host_port.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"
#include "core/rpc/tls.h"
#include "paceline/v1/coordinator.grpc.pb.h"

namespace paceline {

namespace {

std::string WithHost(const std::string& address, const std::string& peer) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return address;
  const std::string host = address.substr(0, colon);
  if (!host.empty() && host != "0.0.0.0" && host != "[::]") return address;
  return HostOfPeer(peer) + address.substr(colon);
}

// Whether `host` is an address of this machine.
bool IsThisMachine(const std::string& host) {
  ifaddrs* all = nullptr;
  if (host.empty() || IsLoopback(host) || getifaddrs(&all) != 0) return true;
  bool found = false;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size =
        family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = {};
    found = found || (getnameinfo(one->ifa_addr, size, text, sizeof(text),
                                  nullptr, 0, NI_NUMERICHOST) == 0 &&
                      host == text);
  }
  freeifaddrs(all);
  return found;
}

// A loopback address works on this machine only: another machine that dials it
// reaches itself.
absl::Status CheckReach(const v1::Registration& worker,
                        const std::string& peer) {
  const absl::StatusOr<HostPort> at = ParseHostPort(worker.address());
  const absl::StatusOr<HostPort> from =
      ParseHostPort(absl::StrCat(HostOfPeer(peer), ":0"));
  if (!at.ok() || !from.ok() || !IsLoopback(at->host) ||
      IsThisMachine(from->host)) {
    return absl::OkStatus();
  }
  const std::string reachable = JoinHostPort(from->host, at->port);
  return InvalidArgument(
      "worker ", worker.name(), " attaches from ", from->host,
      " but gives its address as ", worker.address(),
      ", where no other machine reaches it: start it with --listen ", reachable,
      ", or where others reach it at another address, with --advertise "
      "HOST:PORT too");
}

// Longer than the two minutes after which a worker gives up a call.
constexpr absl::Duration kLongestStandstill = absl::Minutes(3);

// The coordinator's end of one Attach stream.  Thread-safe.  Reads the next
// message only when the coordinator has taken the last one, and has one write
// under way.  Messages wait in one slot a kind (welcome, newest order, newest
// acknowledgement), so that a slow worker costs bounded memory.
class AttachStream final
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
      public WorkerStream,
      public std::enable_shared_from_this<AttachStream> {
 public:
  // The peer's certificate; shared with gRPC's connection.
  using Caller = std::shared_ptr<const grpc::AuthContext>;

  // `peer`: grpc::CallbackServerContext::peer().  All references outlive it.
  // A worker that shows the certificate of another name is refused.
  // A stream takes a place among `strangers` until its registration comes, and
  // ends if it does not come within `registration`.
  static AttachStream* Start(Coordinator& coordinator,
                             CoordinatorMetrics& metrics, std::string peer,
                             Caller caller, StreamLimit& strangers,
                             absl::Duration registration) {
    auto place = strangers.Enter(peer);
    const auto stream = std::make_shared<AttachStream>(
        coordinator, metrics, std::move(peer), std::move(caller));
    {
      absl::MutexLock lock(&stream->mutex_);
      stream->self_ = stream;
    }
    if (!place.ok()) {
      stream->End(place.status());
      return stream.get();
    }
    const auto expired = [registration, raw = stream.get()] {
      raw->End(DeadlineExceeded("no registration came within ",
                                absl::FormatDuration(registration)));
    };
    stream->stranger_.reset(
        new Stranger{*std::move(place), CallDeadline(registration, expired)});
    stream->ReadNext();
    return stream.get();
  }

  AttachStream(Coordinator& coordinator, CoordinatorMetrics& metrics,
               std::string peer, Caller caller)
      : coordinator_(coordinator),
        metrics_(metrics),
        peer_(std::move(peer)),
        caller_(std::move(caller)),
        id_(coordinator.NextStream()) {}

  void SendOrder(const StandingOrder& order) override {
    v1::StandingOrder proto = ToProto(order);
    absl::MutexLock lock(&mutex_);
    order_ = std::move(proto);
    PumpLocked();
  }

  void SendAck(int64_t sequence) override {
    absl::MutexLock lock(&mutex_);
    ack_ = sequence;
    PumpLocked();
  }

  void End(const absl::Status& status) override {
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      end_ = status;
    }
    // First, since PumpLocked() may end this stream's life.
    coordinator_.OnBroken(id_);
    absl::MutexLock lock(&mutex_);
    PumpLocked();
  }

  bool ended() const override {
    absl::MutexLock lock(&mutex_);
    return end_.has_value();
  }
  std::string peer() const override { return peer_; }

  void OnReadDone(bool ok) override {
    stranger_ = nullptr;
    if (!ok) return End(absl::OkStatus());
    if (registered_) return TakeHeartbeat(incoming_);
    Register(incoming_);
  }

  void OnWriteDone(bool /*ok*/) override {
    // A failed write shows as a failed read too, which ends the stream.
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    PumpLocked();
  }

  void OnCancel() override { End(Cancelled("the worker closed the stream")); }
  void OnDone() override {
    std::shared_ptr<AttachStream> self;
    absl::MutexLock lock(&mutex_);
    self.swap(self_);
  }

 private:
  // Exists until the registration comes.
  struct Stranger {
    std::unique_ptr<StreamLimit::Place> place;
    CallDeadline deadline;
  };

  void Register(const v1::WorkerMessage& message) {
    v1::Registration registration = message.registration();
    absl::Status taken =
        message.has_registration()
            ? TakeRegistration(peer_, registration)
            : InvalidArgument("the first message of Attach is no registration");
    const std::optional<Identity> identity = IdentityOf(*caller_);
    registration.set_key(KeyOf(*caller_));
    if (taken.ok() && identity.has_value() &&
        identity->name != registration.name()) {
      taken = PermissionDenied(
          "worker ", registration.name(), " shows the certificate of worker ",
          identity->name, ": join again under the new name");
    }
    if (!taken.ok()) return OnWelcome(taken);
    registered_ = true;
    Listener::OnKnown(peer_);
    coordinator_.Attach(id_, shared_from_this(), std::move(registration),
                        [self = shared_from_this()](
                            const absl::StatusOr<v1::Welcome>& welcome) {
                          self->OnWelcome(welcome);
                        });
  }

  void TakeHeartbeat(const v1::WorkerMessage& message) {
    absl::StatusOr<WorkerReport> report =
        message.has_heartbeat()
            ? FromProto(message.heartbeat())
            : InvalidArgument("after the registration come heartbeats only");
    const auto taken = [self = shared_from_this()](const absl::Status& status) {
      self->metrics_.CountHeartbeat(status.code());
      if (status.ok()) return self->ReadNext();
      self->End(status);
    };
    if (!report.ok()) return taken(report.status());
    coordinator_.OnReport(id_, *std::move(report), taken);
  }

  void OnWelcome(const absl::StatusOr<v1::Welcome>& welcome) {
    absl::Status taken = welcome.status();
    // The worker may have been revoked while its registration waited.
    if (taken.ok()) taken = CheckRevoked(*caller_);
    metrics_.CountAttach(taken.code());
    if (!taken.ok()) return End(taken);
    absl::MutexLock lock(&mutex_);
    welcome_ = *welcome;
    PumpLocked();
    ReadNextLocked();
  }

  void ReadNext() {
    absl::MutexLock lock(&mutex_);
    ReadNextLocked();
  }
  // gRPC only queues these operations; it calls back from other threads.
  void ReadNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!finished_) StartRead(&incoming_);
  }
  // Starts the next write, or finishes the stream if it has ended.
  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_ || writing_) return;
    if (end_.has_value()) {
      finished_ = true;
      Finish(ToGrpc(*end_));
    } else if (TakeNextLocked()) {
      writing_ = true;
      StartWrite(&outgoing_);
    }
  }

  bool TakeNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    outgoing_.Clear();
    if (welcome_.has_value()) {
      *outgoing_.mutable_welcome() = *std::exchange(welcome_, std::nullopt);
    } else if (order_.has_value()) {
      *outgoing_.mutable_order() = *std::exchange(order_, std::nullopt);
    } else if (ack_.has_value()) {
      outgoing_.mutable_ack()->set_sequence(*std::exchange(ack_, std::nullopt));
    } else {
      return false;
    }
    return true;
  }

  // Constant after construction.
  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  const std::string peer_;
  const Caller caller_;
  const StreamId id_;

  // Touched by the one read under way, and between two reads by its handler.
  v1::WorkerMessage incoming_;
  std::unique_ptr<Stranger> stranger_;
  bool registered_ = false;

  // Touched by the one write under way.
  v1::CoordinatorMessage outgoing_;

  mutable absl::Mutex mutex_;
  // Shared with the coordinator's list of streams; dropped in OnDone(), which
  // is gRPC's last call.
  std::shared_ptr<AttachStream> self_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Welcome> welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::StandingOrder> order_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> ack_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // the first wins
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // no more gRPC calls
};

// One worker's upload: it reads the next chunk when the last one was written.
// gRPC keeps it alive until Finish(), which comes after every answer of the
// coordinator; so the answers may hold a plain pointer.
class UploadReactor final : public grpc::ServerReadReactor<v1::WeightsPiece> {
 public:
  UploadReactor(Coordinator& coordinator, v1::WeightsReceipt* receipt,
                grpc::CallbackServerContext& context,
                absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place)
      : coordinator_(coordinator),
        receipt_(receipt),
        peer_(context.peer()),
        place_(std::move(place)),
        context_(context) {
    GrantTime();
    if (place_.ok()) {
      StartRead(&piece_);
    } else {
      // Not ResourceExhausted, which in an upload means a full disk.
      Finish(ToGrpc(Unavailable(place_.status().message())));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Close();
    GrantTime();
    if (FenceOf(piece_) == fence_) return Write();
    fence_ = FenceOf(piece_);
    coordinator_.AdmitUpload(fence_, peer_, [this](const absl::Status& may) {
      if (!may.ok()) return Finish(ToGrpc(may));
      Write();
    });
  }

  void OnDone() override { delete this; }

 private:
  void GrantTime() {
    deadline_.emplace(kLongestStandstill, [this] { context_.TryCancel(); });
  }

  void Write() {
    bytes_ += static_cast<int64_t>(piece_.data().size());
    coordinator_.WriteWeights(std::move(piece_),
                              [this](const absl::Status& status) {
                                if (!status.ok()) return Finish(ToGrpc(status));
                                place_ = nullptr;
                                Listener::OnKnown(peer_);
                                StartRead(&piece_);
                              });
  }

  void Close() {
    receipt_->set_bytes(bytes_);
    // A stage without parameters sends nothing.
    if (!fence_.job.assigned()) return Finish(grpc::Status::OK);
    coordinator_.SyncWeights(
        fence_, [this](const absl::Status& status) { Finish(ToGrpc(status)); });
  }

  Coordinator& coordinator_;
  v1::WeightsReceipt* const receipt_;
  const std::string peer_;
  // Held until a chunk of a known job was written.
  absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place_;
  v1::WeightsPiece piece_;
  Fence fence_;  // of the last chunk
  int64_t bytes_ = 0;
  grpc::CallbackServerContext& context_;
  std::optional<CallDeadline> deadline_;
};

// Turns calls of workers into calls on Coordinator, and back; decides nothing.
// Thread-safe.
class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  CoordinatorService(Coordinator& coordinator, CoordinatorMetrics& metrics,
                     absl::Duration registration)
      : coordinator_(coordinator),
        metrics_(metrics),
        registration_(registration) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override {
    return AttachStream::Start(coordinator_, metrics_, context->peer(),
                               context->auth_context(), strangers_,
                               registration_);
  }

  grpc::ServerReadReactor<v1::WeightsPiece>* UploadWeights(
      grpc::CallbackServerContext* context,
      v1::WeightsReceipt* receipt) override {
    return new UploadReactor(coordinator_, receipt, *context,
                             strangers_.Enter(context->peer()));
  }

 private:
  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  const absl::Duration registration_;
  StreamLimit strangers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeCoordinatorService(
    Coordinator& coordinator, CoordinatorMetrics& metrics,
    absl::Duration registration) {
  return std::make_unique<CoordinatorService>(coordinator, metrics,
                                              registration);
}

// --- conversions ------------------------------------------------------------

std::string HostOfPeer(const std::string& peer) {
  const std::string plain =
      absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  absl::string_view rest = plain;
  if (!absl::ConsumePrefix(&rest, "ipv4:") &&
      !absl::ConsumePrefix(&rest, "ipv6:")) {
    return "";
  }
  const size_t colon = rest.rfind(':');
  return std::string(rest.substr(0, colon));
}

absl::Status CheckProtocol(int spoken, int oldest, int newest) {
  spoken = std::max(1, spoken);
  if (spoken >= oldest && spoken <= newest) return absl::OkStatus();
  return Unimplemented(
      "the worker speaks protocol ", spoken, ", this coordinator (paceline ",
      kVersion, ") ", oldest == newest ? "" : absl::StrCat(oldest, " to "),
      newest, ": upgrade the ", spoken > newest ? "coordinator" : "worker");
}

absl::Status TakeRegistration(const std::string& peer,
                              v1::Registration& worker) {
  PACELINE_RETURN_IF_ERROR(CheckProtocol(worker.protocol_version(),
                                         kOldestProtocol, kProtocolVersion));
  worker.set_address(WithHost(worker.address(), peer));
  worker.set_http_address(WithHost(worker.http_address(), peer));
  PACELINE_RETURN_IF_ERROR(CheckRegistration(worker));
  return CheckReach(worker, peer);
}

absl::StatusOr<WorkerReport> FromProto(v1::Heartbeat heartbeat) {
  PACELINE_RETURN_IF_ERROR(CheckHeartbeat(heartbeat));
  WorkerReport report;
  if (heartbeat.run().has_member()) {
    PACELINE_ASSIGN_OR_RETURN(report.member,
                              FromProto(heartbeat.run().member()));
  }
  if (heartbeat.has_measurement()) {
    PACELINE_RETURN_IF_ERROR(CheckMeasurement(heartbeat.measurement()));
  }
  report.heartbeat = std::move(heartbeat);
  return report;
}

v1::StandingOrder ToProto(const StandingOrder& order) {
  v1::StandingOrder proto = order.rest;
  if (order.run.has_value()) *proto.mutable_run() = ToProto(*order.run);
  return proto;
}

}  // namespace paceline
