#include "worker/transport/attach_client.h"

#include <algorithm>
#include <utility>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/obs/log.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"
#include "core/rpc/tls.h"
#include "paceline/v1/coordinator.grpc.pb.h"

namespace paceline {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(2);

}  // namespace

AttachClient::AttachClient(AttachOptions options,
                           std::shared_ptr<grpc::Channel> channel, Agent& agent)
    : options_(std::move(options)),
      channel_(std::move(channel)),
      agent_(agent),
      heartbeat_thread_("heartbeat", [this] { HeartbeatLoop(); }),
      attach_thread_("attach", [this] { AttachLoop(); }) {}

AttachClient::~AttachClient() {
  stop_.Cancel(Cancelled("the worker is stopping"));
  std::shared_ptr<Session> session;
  {
    SteadyLock lock(&mutex_);
    stopping_ = true;
    session = session_;
  }
  if (session != nullptr) session->context.TryCancel();
  attach_thread_.Join();
  heartbeat_thread_.Join();
}

bool AttachClient::attached() const {
  SteadyLock lock(&mutex_);
  return welcomed_;
}

bool AttachClient::AwaitRelease(absl::Duration longest) const {
  const auto released = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return released_ || !welcomed_;
  };
  SteadyLock lock(&mutex_);
  return mutex_.AwaitFor(absl::Condition(&released), longest);
}

void AttachClient::AwaitEndKnown(absl::Duration longest) const {
  const auto known = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return end_is_known_ || !welcomed_;
  };
  SteadyLock lock(&mutex_);
  mutex_.AwaitFor(absl::Condition(&known), longest);
}

void AttachClient::AttachLoop() {
  absl::Duration pause = kFirstPause;
  while (stop_.status().ok()) {
    const absl::Status status = RunSession();
    if (!stop_.status().ok()) return;
    if (IsRefusal(status)) {
      options_.on_refused(status);
      return;
    }
    if (absl::IsAlreadyExists(status) || absl::IsUnimplemented(status)) {
      LogDeclined(status);
    } else if (absl::IsInvalidArgument(status)) {
      LogUnread(status);
    } else {
      LogBroken(status);
    }
    // The backoff starts anew after a session with a welcome.  After an invalid
    // argument it grows, since the worker is likely to send the same data
    // again.
    pause = tried_ || absl::IsInvalidArgument(status)
                ? std::min(pause * 2, kLongestPause)
                : kFirstPause;
    tried_ = true;
    if (!stop_.Pause(pause).ok()) return;
  }
}

// Before the welcome an invalid argument refers to the registration.  After it,
// it refers to a heartbeat, whose mistake may have come from a neighbour and be
// gone in the next heartbeat.
bool AttachClient::IsRefusal(const absl::Status& status) const {
  return absl::IsAborted(status) || absl::IsPermissionDenied(status) ||
         absl::IsUnauthenticated(status) ||
         (absl::IsInvalidArgument(status) && !was_welcomed_);
}

// Logs once for each period without a coordinator, not once for each try.
void AttachClient::LogBroken(const absl::Status& status) {
  if (std::exchange(said_broken_, true)) return;
  Log(LogLevel::kWarn,
      "no coordinator: will keep trying; check --coordinator, and that it runs",
      {{"coordinator", options_.coordinator}, {"status", status.ToString()}});
}

// The coordinator's message names the address of the worker that has the name,
// or the program to upgrade.
void AttachClient::LogDeclined(const absl::Status& status) {
  if (std::exchange(said_declined_, true)) return;
  Log(LogLevel::kWarn,
      absl::IsUnimplemented(status)
          ? "the coordinator is of another release: will keep trying"
          : "the name is taken: will keep trying; give this worker another "
            "with --name, or stop the other one",
      {{"name", options_.registration.name()},
       {"coordinator", options_.coordinator},
       {"why", status.message()}});
}

// Logs once until a heartbeat is acknowledged again, not once for each try.
void AttachClient::LogUnread(const absl::Status& status) {
  if (std::exchange(said_unread_, true)) return;
  Log(LogLevel::kWarn,
      "the coordinator could not take a heartbeat: will attach again",
      {{"coordinator", options_.coordinator}, {"status", status.ToString()}});
}

absl::Status AttachClient::RunSession() {
  was_welcomed_ = false;
  auto session = std::make_shared<Session>();
  session->stream =
      v1::Coordinator::NewStub(channel_)->Attach(&session->context);
  v1::WorkerMessage hello;
  *hello.mutable_registration() = options_.registration;
  hello.mutable_registration()->set_unix_ms(
      absl::ToUnixMillis(SystemClock().Today()));
  if (session->stream->Write(hello)) {
    agent_.OnAttached();
    {
      SteadyLock lock(&mutex_);
      session_ = session;
      sequence_ = 0;
      marks_.clear();
      announced_in_ = 0;
      if (stopping_) session->context.TryCancel();
    }
    for (v1::CoordinatorMessage message; session->stream->Read(&message);) {
      OnMessage(message);
    }
  }
  {
    SteadyLock lock(&mutex_);
    session_.reset();
    welcomed_ = false;
  }
  agent_.OnDetached();
  const absl::Status status = FromGrpc(session->stream->Finish());
  return status.ok() ? Unavailable("the coordinator closed the stream")
                     : status;
}

void AttachClient::OnMessage(const v1::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kWelcome: {
      const v1::Welcome& welcome = message.welcome();
      agent_.OnWelcome(WorkerId{welcome.worker_id()});
      tried_ = said_broken_ = said_declined_ = false;
      was_welcomed_ = true;
      Log(LogLevel::kInfo, "attached to the coordinator",
          {{"worker", welcome.worker_id()},
           {"coordinator", options_.coordinator}});
      SteadyLock lock(&mutex_);
      welcomed_ = true;
      if (welcome.heartbeat_period_ms() > 0) {
        period_ = absl::Milliseconds(welcome.heartbeat_period_ms());
      }
      return;
    }
    case v1::CoordinatorMessage::kOrder: {
      const absl::Status taken = OnOrder(message.order());
      if (taken.ok()) return;
      return Log(LogLevel::kError,
                 "an order that cannot be carried out was dropped",
                 {{"status", taken.ToString()}});
    }
    case v1::CoordinatorMessage::kAck:
      return OnAck(message.ack().sequence());
    case v1::CoordinatorMessage::KIND_NOT_SET:
      return;  // unknown kind of a newer coordinator, which needs no answer
  }
}

absl::Status AttachClient::OnOrder(const v1::StandingOrder& order) {
  std::optional<RunOrder> run;
  if (order.has_run()) {
    PACELINE_ASSIGN_OR_RETURN(run, FromProto(order.run()));
  }
  std::optional<v1::MeasureOrder> measure;
  if (order.has_measure()) {
    PACELINE_RETURN_IF_ERROR(CheckMeasureOrder(order.measure()));
    measure = order.measure();
  }
  PACELINE_ASSIGN_OR_RETURN(const KeepOrder keep, KeepFromProto(order));
  for (const v1::RevokedHolder& each : order.revoked()) {
    RevokeCertificates(each.holder(), absl::FromUnixMillis(each.unix_ms()));
  }
  {
    SteadyLock lock(&mutex_);
    released_ = order.released();
  }
  agent_.OnKeep(keep);
  agent_.OnMeasure(std::move(measure));
  agent_.OnOrder(std::move(run), keep.number);
  const bool settles = !order.settle().empty();
  if ((!order.renew() && !settles) || options_.renew == nullptr ||
      std::exchange(renews_, true)) {
    return absl::OkStatus();
  }
  Log(LogLevel::kWarn,
      settles ? "starting anew, at the CPU capability of a job to come"
              : "taken out of its job: starting anew to take part in it again");
  options_.renew(settles ? order.settle()
                         : options_.registration.started_for());
  return absl::OkStatus();
}

void AttachClient::OnAck(int64_t sequence) {
  said_unread_ = false;
  RecordMarks marks;
  {
    SteadyLock lock(&mutex_);
    const auto found = marks_.find(sequence);
    if (found == marks_.end()) return;
    if (announced_in_ > 0 && sequence >= announced_in_) end_is_known_ = true;
    marks = found->second;
    marks_.erase(marks_.begin(), std::next(found));
  }
  agent_.OnAck(marks);
}

void AttachClient::HeartbeatLoop() {
  for (;;) {
    absl::Duration period;
    {
      // Without a welcome no heartbeat can report the agent's change.  The
      // change would stay, and AwaitChange() would not wait at all.
      const auto attached = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return welcomed_ || stopping_;
      };
      SteadyLock lock(&mutex_);
      mutex_.Await(absl::Condition(&attached));
      if (stopping_) return;
      period = period_;
    }
    agent_.AwaitChange(period);
    {
      SteadyLock lock(&mutex_);
      if (stopping_) return;
      if (!welcomed_) continue;
    }
    MarkedHeartbeat content = agent_.Heartbeat();
    std::shared_ptr<Session> session;
    v1::WorkerMessage message;
    {
      SteadyLock lock(&mutex_);
      if (session_ == nullptr) continue;
      session = session_;
      marks_[++sequence_] = content.marks;
      v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
      heartbeat = std::move(content.heartbeat);
      heartbeat.set_sequence(sequence_);
      if ((heartbeat.restarting() || heartbeat.stopping()) &&
          announced_in_ == 0) {
        announced_in_ = sequence_;
      }
    }
    // The reader sees a failed write as the end of its stream.
    session->stream->Write(message);
  }
}

}  // namespace paceline
