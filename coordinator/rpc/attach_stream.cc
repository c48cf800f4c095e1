#include "coordinator/rpc/attach_stream.h"

#include <utility>

#include "coordinator/rpc/convert.h"
#include "core/base/errors.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"

namespace paceline {

AttachStream::AttachStream(Coordinator& coordinator,
                           CoordinatorMetrics& metrics, std::string peer,
                           Caller caller)
    : coordinator_(coordinator),
      metrics_(metrics),
      peer_(std::move(peer)),
      caller_(std::move(caller)),
      id_(coordinator.NextStream()) {}

AttachStream* AttachStream::Start(Coordinator& coordinator,
                                  CoordinatorMetrics& metrics, std::string peer,
                                  Caller caller, StreamLimit& strangers,
                                  absl::Duration registration) {
  auto place = strangers.Enter(peer);
  const std::shared_ptr<AttachStream> stream(new AttachStream(
      coordinator, metrics, std::move(peer), std::move(caller)));
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

// --- up ---------------------------------------------------------------------

void AttachStream::ReadNext() {
  absl::MutexLock lock(&mutex_);
  if (!finished_) StartRead(&incoming_);
}

std::shared_ptr<AttachStream> AttachStream::Self() {
  absl::MutexLock lock(&mutex_);
  return self_;
}

void AttachStream::OnReadDone(bool ok) {
  stranger_ = nullptr;
  if (!ok) {
    End(absl::OkStatus());
  } else if (!registered_) {
    Register(incoming_);
  } else {
    TakeHeartbeat(incoming_);
  }
}

void AttachStream::Register(const v1::WorkerMessage& message) {
  v1::Registration registration = message.registration();
  absl::Status taken =
      message.has_registration()
          ? TakeRegistration(peer_, registration)
          : InvalidArgument("the first message of Attach is no registration");
  const std::optional<Identity> identity = IdentityOf(*caller_);
  registration.set_key(KeyOf(*caller_));
  if (taken.ok() && identity.has_value() &&
      identity->name != registration.name()) {
    taken = PermissionDenied("worker ", registration.name(),
                             " shows the certificate of worker ",
                             identity->name, ": join again under the new name");
  }
  if (!taken.ok()) {
    OnWelcome(taken);
    return;
  }
  registered_ = true;
  Listener::OnKnown(peer_);
  const std::shared_ptr<AttachStream> self = Self();
  coordinator_.Attach(id_, self, std::move(registration),
                      [self](const absl::StatusOr<v1::Welcome>& welcome) {
                        self->OnWelcome(welcome);
                      });
}

void AttachStream::OnWelcome(const absl::StatusOr<v1::Welcome>& welcome) {
  absl::Status taken = welcome.status();
  // The worker may have been revoked while its registration waited.
  if (taken.ok()) taken = CheckRevoked(*caller_);
  metrics_.CountAttach(taken.code());
  if (!taken.ok()) {
    End(taken);
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    welcome_ = *welcome;
  }
  Pump();
  ReadNext();
}

void AttachStream::TakeHeartbeat(const v1::WorkerMessage& message) {
  absl::StatusOr<WorkerReport> report =
      message.has_heartbeat()
          ? FromProto(message.heartbeat())
          : InvalidArgument("after the registration come heartbeats only");
  if (!report.ok()) {
    metrics_.CountHeartbeat(report.status().code());
    End(report.status());
    return;
  }
  const std::shared_ptr<AttachStream> self = Self();
  coordinator_.OnReport(id_, *std::move(report),
                        [self](const absl::Status& status) {
                          self->metrics_.CountHeartbeat(status.code());
                          if (status.ok()) {
                            self->ReadNext();
                          } else {
                            self->End(status);
                          }
                        });
}

// --- down -------------------------------------------------------------------

void AttachStream::SendOrder(const StandingOrder& order) {
  v1::StandingOrder proto = ToProto(order);
  {
    absl::MutexLock lock(&mutex_);
    order_ = std::move(proto);
  }
  Pump();
}

void AttachStream::SendAck(int64_t sequence) {
  {
    absl::MutexLock lock(&mutex_);
    ack_ = sequence;
  }
  Pump();
}

void AttachStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    end_ = status;
  }
  // First, since Pump() may end this stream's life.
  coordinator_.OnBroken(id_);
  Pump();
}

bool AttachStream::ended() const {
  absl::MutexLock lock(&mutex_);
  return end_.has_value();
}

bool AttachStream::TakeNextLocked() {
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

void AttachStream::Pump() {
  // gRPC only queues these operations; it calls back from other threads.
  absl::MutexLock lock(&mutex_);
  if (finished_ || writing_) return;
  if (end_.has_value()) {
    finished_ = true;
    Finish(ToGrpc(*end_));
  } else if (TakeNextLocked()) {
    writing_ = true;
    StartWrite(&outgoing_);
  }
}

void AttachStream::OnWriteDone(bool /*ok*/) {
  // A failed write shows as a failed read too, which ends the stream.
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
  Pump();
}

void AttachStream::OnCancel() {
  End(Cancelled("the worker closed the stream"));
}

void AttachStream::OnDone() {
  std::shared_ptr<AttachStream> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace paceline
