#include "worker/rpc/round_outbound.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/host_port.h"
#include "core/obs/log.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "core/transfer/frame.h"
#include "paceline/v1/round.pb.h"
#include "worker/rpc/frame_buffer.h"

namespace paceline {
namespace {

// A process that is killed closes what it has within a few milliseconds.
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxBackoff = absl::Milliseconds(500);
// A chunk takes as long on a link of 20 Mbit/s.
constexpr absl::Duration kForgottenWrite = absl::Milliseconds(100);
constexpr int64_t kMaxReceiptBytes = 1 << 10;
constexpr char kExchange[] = "/paceline.v1.Round/Exchange";

RoundFrameHeader HeaderOf(const RoundOutboundOptions& options) {
  const auto process = [](const MemberId& id) {
    return RoundProcess{id.worker.value, id.incarnation.value};
  };
  RoundFrameHeader header;
  header.job = options.fence.job.value;
  header.attempt = options.fence.attempt;
  header.plan_version = options.fence.plan_version;
  header.from = process(options.self);
  header.to = process(options.peer.id);
  return header;
}

// Nobody listens there, or somebody else does: gRPC says the former in words
// only.
bool IsRefusal(const absl::Status& status) {
  return absl::IsNotFound(status) ||
         (absl::IsUnavailable(status) &&
          absl::StrContains(status.message(), "Connection refused"));
}

bool IsHere(const std::string& address) {
  const auto where = ParseHostPort(address);
  return where.ok() && IsLoopback(where->host);
}

grpc::ByteBuffer OneSlice(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Of a peer that says something else: as if it had said nothing.
LoanReceipt ReceiptOf(const grpc::ByteBuffer& bytes) {
  v1::RoundReceipt receipt;
  MessageView view;
  if (!view.Open(bytes)) return {};
  int64_t size = 0;
  for (const ByteSpan& span : view.spans()) {
    size += static_cast<int64_t>(span.size());
  }
  if (size > kMaxReceiptBytes ||
      !receipt.ParseFromString(CopyBytes(view.spans(), 0, size))) {
    return {};
  }
  return {receipt.word(), receipt.readable(), receipt.taken()};
}

void ReleasePayload(void* owner) {
  delete static_cast<std::shared_ptr<RoundPayload>*>(owner);
}

}  // namespace

RoundOutbound::RoundOutbound(RoundOutboundOptions options,
                             std::shared_ptr<PlaneShared> shared)
    : options_(std::move(options)),
      shared_(std::move(shared)),
      header_(HeaderOf(options_)),
      lender_(IsHere(options_.peer.address), header_.from, header_.to),
      backoff_(kFirstBackoff) {}

RoundOutbound::~RoundOutbound() = default;

void RoundOutbound::Start() { Connect(); }

void RoundOutbound::SendAhead(const PayloadKey& key,
                              std::shared_ptr<RoundPayload> payload) {
  AddPayload(key, payload);
}

void RoundOutbound::Send(std::string message, const PayloadKey& key,
                         std::shared_ptr<RoundPayload> payload) {
  if (payload == nullptr) {
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) return;
      queue_.AddMessage(std::move(message));
    }
    // What a small frame's system call takes is less than waking a thread for
    // it; but a chunk may be next in the queue once the message is out.
    return Pump();
  }
  AddPayload(key, payload);
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  queue_.AddMessage(std::move(message), key);
  PostPumpLocked();
}

void RoundOutbound::AddPayload(const PayloadKey& key,
                               const std::shared_ptr<RoundPayload>& payload) {
  std::shared_ptr<RoundPayload> replaced = payload;
  std::vector<std::shared_ptr<RoundPayload>> dropped;  // without the lock
  RoundQueue::Ticket ticket = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    dropped = queue_.DropOlderStates(key);
    ticket = queue_.AddPayload(key, &replaced);
  }
  if (ticket == 0) return;
  payload->Subscribe([weak = weak_from_this(), key, ticket](int chunk) {
    if (const auto self = weak.lock()) self->OnReady(key, ticket, chunk);
  });
}

void RoundOutbound::OnReady(const PayloadKey& key, RoundQueue::Ticket ticket,
                            int chunk) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  queue_.OnReady(key, ticket, chunk);
  PostPumpLocked();
}

void RoundOutbound::Forget(int64_t step) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;  // without the lock
  absl::MutexLock lock(&mutex_);
  dropped = queue_.Forget(step);
  const bool writes = turn_.writing() && written_key_.has_value() &&
                      written_key_->step < step &&
                      written_key_->kind != PayloadKey::Kind::kState;
  const int64_t loan = lender_.LastLoanBefore(step);
  if (!writes && loan == 0) return;
  // The peer answers a frame that lends nothing with what it has taken.
  if (loan > 0) {
    hello_due_ = true;
    PostPumpLocked();
  }
  shared_->timers.RunAt(
      absl::Now() + kForgottenWrite,
      [self = shared_from_this(), call = calls_, write = writes ? writes_ : 0,
       loan] { self->GiveUp(call, write, loan); });
}

void RoundOutbound::GiveUp(int64_t call, int64_t write, int64_t loan) {
  absl::MutexLock lock(&mutex_);
  if (call_ == nullptr || calls_ != call) return;
  const bool writes = turn_.writing() && writes_ == write;
  if (!writes && !lender_.IsOut(loan)) return;
  gave_up_ = true;
  call_->Cancel();
}

void RoundOutbound::Close() {
  RoundQueue dropped;  // freed without the lock
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  std::swap(dropped, queue_);
  if (call_ != nullptr) call_->Cancel();
}

void RoundOutbound::Connect() {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || call_ != nullptr) return;
    if (channel_ == nullptr) {
      channel_ = shared_->channels.Make(options_.peer.address);
    }
    call_ = new OutboundCall(shared_from_this(), shared_, channel_, kExchange);
    ++calls_;
    hello_due_ = true;
    received_ = false;
    turn_.Reset();
    written_key_.reset();
    // Under the lock, so that Close() finds a call that it can cancel.  gRPC
    // does not react on the stack of the one who starts something.
    call_->Start();
  }
  Pump();
}

void RoundOutbound::PostPumpLocked() {
  if (pump_posted_ || call_ == nullptr || turn_.writing()) return;
  pump_posted_ = true;
  shared_->timers.Run([self = shared_from_this()] {
    {
      absl::MutexLock lock(&self->mutex_);
      self->pump_posted_ = false;
    }
    self->Pump();
  });
}

void RoundOutbound::Pump() {
  OutboundCall* call = nullptr;
  std::optional<RoundQueue::Item> item;
  std::optional<RoundMemory> memory;
  bool lent = false;
  {
    absl::MutexLock lock(&mutex_);
    call = call_;
    if (call == nullptr || !turn_.CanBegin()) return;
    const bool hello = std::exchange(hello_due_, false);
    if (!hello) memory = lender_.TakeIntroduction();
    if (!hello && !memory.has_value()) {
      item = queue_.TakeNext(MostChunksLocked());
      if (!item.has_value()) return;
      written_key_ = item->chunk < 0 ? std::nullopt : item->key;
      lent = item->chunk >= 0 && lender_.lends();
      if (lent) lender_.Lend(*item->key, item->payload);
    }
    turn_.Begin();
    ++writes_;
  }
  // Without the lock: it may copy a chunk into the kernel.  The call stays
  // until OnWritten().
  call->Write(item.has_value() ? BufferOf(*item, lent) : HelloOf(memory));
}

int RoundOutbound::MostChunksLocked() const {
  if (!lender_.has_room()) return 0;
  return lender_.lends() ? kMostLentTogether : 1;
}

grpc::ByteBuffer RoundOutbound::HelloOf(
    std::optional<RoundMemory> memory) const {
  RoundFrameHeader header = header_;
  header.memory = memory;
  return OneSlice(EncodeRoundHello(header));
}

grpc::ByteBuffer RoundOutbound::BufferOf(const RoundQueue::Item& item,
                                         bool lent) const {
  RoundFrameHeader header = header_;
  if (item.key.has_value()) {
    header.payload = {static_cast<uint8_t>(item.key->kind), item.key->step,
                      item.key->shard, item.key->variant,
                      static_cast<int64_t>(item.payload->size())};
  }
  ++shared_->counters.frames_sent;
  if (item.chunk < 0) {
    return OneSlice(EncodeRoundMessagePrefix(
                        header, static_cast<int64_t>(item.message.size())) +
                    item.message);
  }
  const absl::Span<uint8_t> chunk = item.payload->chunk(item.chunk);
  header.chunk = item.chunk;
  header.checksum = item.payload->chunk_hash(item.chunk);
  shared_->counters.bytes_sent += static_cast<int64_t>(chunk.size());
  for (int i = item.chunk + 1; i < item.chunk + item.chunks; ++i) {
    header.further.push_back(item.payload->chunk_hash(i));
    shared_->counters.bytes_sent +=
        static_cast<int64_t>(item.payload->chunk(i).size());
  }
  if (lent) {
    header.address = reinterpret_cast<uint64_t>(chunk.data());
    return OneSlice(EncodeRoundLoan(header));
  }
  const std::string prefix =
      EncodeRoundPiecePrefix(header, static_cast<int64_t>(chunk.size()));
  const grpc::Slice slices[] = {
      grpc::Slice(prefix),
      grpc::Slice(chunk.data(), chunk.size(), &ReleasePayload,
                  new std::shared_ptr<RoundPayload>(item.payload))};
  return grpc::ByteBuffer(slices, 2);
}

void RoundOutbound::OnRead(grpc::ByteBuffer& receipt) {
  const LoanReceipt said = ReceiptOf(receipt);
  std::vector<std::shared_ptr<RoundPayload>> returned;  // without the lock
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    returned = lender_.OnReceipt(said);
    first = !std::exchange(received_, true);
  }
  returned.clear();
  Pump();
  if (first) OnFirstReceipt();
}

void RoundOutbound::OnFirstReceipt() {
  bool back_again = false;
  bool tell = false;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    tell = told_up_ != true;
    told_up_ = true;
    refused_ = false;
    back_again = std::exchange(was_up_, true);
    if (!bad_data_) backoff_ = kFirstBackoff;
  }
  if (back_again) ++shared_->counters.reconnects;
  if (!tell) return;
  if (back_again) {
    Log(LogLevel::kInfo, "member is connected again",
        {{"member", options_.peer.id.worker.value},
         {"address", options_.peer.address}});
  }
  options_.on_link(/*up=*/true, /*refused=*/false);
}

void RoundOutbound::OnWritten(bool ok) {
  OutboundCall* unused = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    call_->Release();
    written_key_.reset();
    if (turn_.End(ok)) unused = call_;
  }
  if (unused != nullptr) return unused->RemoveHold();
  Pump();
}

void RoundOutbound::OnReadEnded() {
  OutboundCall* unused = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (turn_.EndReads()) unused = call_;
  }
  if (unused != nullptr) unused->RemoveHold();
}

void RoundOutbound::OnCallDone(const grpc::Status& grpc_status) {
  const absl::Status status = FromGrpc(grpc_status);
  bool tell = false;
  bool closed = false;
  bool refused = IsRefusal(status);
  std::vector<std::shared_ptr<RoundPayload>> returned;  // without the lock
  {
    absl::MutexLock lock(&mutex_);
    call_ = nullptr;
    closed = closed_;
    // What is sent again may be right the next time: it is another part, or the
    // peer was wrong.  It may as well be wrong for good.
    bad_data_ = absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
    returned = lender_.OnCallDone(absl::IsDataLoss(status));
    if (absl::IsUnavailable(status)) channel_ = nullptr;
    queue_.OnBroken();
    // What we gave up ourselves says nothing of the peer.
    tell = !gave_up_ && (told_up_ != false || (refused && !refused_));
    if (tell) told_up_ = false;
    // Once it was refused it stays so until it is up.
    refused = refused_ = refused_ || refused;
    gave_up_ = false;
  }
  if (closed) return;
  if (tell) {
    // Aborted is how every run ends, on those that end it last.
    const bool over = absl::IsAborted(status);
    Log(over ? LogLevel::kInfo : LogLevel::kWarn,
        over ? "member does not take our stream" : "member cannot be reached",
        {{"member", options_.peer.id.worker.value},
         {"address", options_.peer.address},
         {"run", ToText(options_.fence)},
         {"why", status.ToString()}});
    options_.on_link(/*up=*/false, refused);
  }
  Retry();
}

void RoundOutbound::Retry() {
  absl::Duration wait;
  {
    absl::MutexLock lock(&mutex_);
    wait = std::exchange(backoff_, std::min(2 * backoff_, kMaxBackoff));
  }
  shared_->timers.RunAt(absl::Now() + wait,
                        [self = shared_from_this()] { self->Connect(); });
}

}  // namespace paceline
