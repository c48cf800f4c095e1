#include "worker/transport/round/round_outbound.h"

#include <algorithm>
#include <utility>

#include "core/obs/log.h"
#include "core/transfer/frame.h"
#include "worker/transport/stream/frame_buffer.h"

namespace paceline {

RoundQueue::Ticket RoundQueue::AddPayload(
    const PayloadKey& key, std::shared_ptr<RoundPayload>* payload) {
  Sending& sending = payloads_[key];
  if (sending.payload == *payload) return 0;
  std::swap(sending.payload, *payload);
  sending.ticket = next_ticket_++;
  sending.ready.clear();
  sending.taken = 0;
  sending.messages.clear();
  sending.wanted = true;
  return sending.ticket;
}

void RoundQueue::OnReady(const PayloadKey& key, Ticket ticket, int chunk) {
  const auto found = payloads_.find(key);
  if (found == payloads_.end() || found->second.ticket != ticket) return;
  found->second.ready.push_back(chunk);
}

void RoundQueue::Add(std::deque<std::string>* messages, std::string message) {
  if (std::ranges::count(*messages, message) > 0) return;
  messages->push_back(std::move(message));
  if (messages->size() > kMostMessages) messages->pop_front();
}

void RoundQueue::AddMessage(std::string message) {
  Add(&messages_, std::move(message));
}

void RoundQueue::AddMessage(std::string message, const PayloadKey& key) {
  const auto found = payloads_.find(key);
  // Another thread forgot the payload between its bytes and this message.
  if (found == payloads_.end()) return;
  found->second.wanted = true;
  Add(&found->second.messages, std::move(message));
}

void RoundQueue::TakeMessage(Sending& sending, Item& item) {
  if (sending.messages.empty()) return;
  item.message = std::move(sending.messages.front());
  sending.messages.pop_front();
  sending.wanted = !sending.messages.empty();
}

std::optional<RoundQueue::Item> RoundQueue::TakeNext() {
  if (!messages_.empty()) {
    Item item;
    item.message = std::move(messages_.front());
    messages_.pop_front();
    return item;
  }
  for (auto& [key, sending] : payloads_) {
    if (sending.messages.empty() || !sending.sent()) continue;
    Item item{{}, key, sending.payload};
    TakeMessage(sending, item);
    return item;
  }
  // Start at the payload after the last one.
  auto at = payloads_.upper_bound(last_);
  for (size_t i = 0; i < payloads_.size(); ++i, ++at) {
    if (at == payloads_.end()) at = payloads_.begin();
    Sending& sending = at->second;
    if (!sending.wanted || sending.taken == sending.ready.size()) continue;
    last_ = at->first;
    Item item{{}, at->first, sending.payload, sending.ready[sending.taken++]};
    if (sending.sent()) TakeMessage(sending, item);
    return item;
  }
  return std::nullopt;
}

std::vector<std::shared_ptr<RoundPayload>> RoundQueue::Forget(int64_t step) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  std::erase_if(payloads_, [step, &dropped](auto& entry) {
    auto& [key, sending] = entry;
    if (key.step >= step) return false;
    dropped.push_back(std::move(sending.payload));
    return true;
  });
  return dropped;
}

namespace {

// A killed process closes its connections within a few milliseconds.
constexpr absl::Duration kFirstRoundBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxRoundBackoff = absl::Milliseconds(500);
// The time of a chunk on a link of 20 Mbit/s.
constexpr absl::Duration kForgottenWrite = absl::Milliseconds(100);
constexpr char kRoundExchange[] = "/paceline.v1.Round/Exchange";

FrameHeader HeaderOf(const RoundOutboundOptions& options) {
  FrameHeader header;
  header.fence = options.fence;
  header.from = options.self;
  header.to = options.peer.id;
  return header;
}

// Returns whether no process, or another process, listens at the address.
bool IsRefusal(const absl::Status& status) {
  return absl::IsNotFound(status) || IsRefusedDial(status);
}

}  // namespace

RoundOutbound::RoundOutbound(RoundOutboundOptions options,
                             std::shared_ptr<PlaneShared> shared)
    : OutboundStream({kRoundExchange, options.peer.address, kFirstRoundBackoff,
                      kMaxRoundBackoff},
                     std::move(shared)),
      options_(std::move(options)),
      header_(HeaderOf(options_)) {}

void RoundOutbound::Send(std::string message, const PayloadKey& key,
                         std::shared_ptr<RoundPayload> payload) {
  if (payload == nullptr) {
    {
      absl::MutexLock lock(&mutex_);
      if (need() == Need::kClosed) return;
      queue_.AddMessage(std::move(message));
    }
    // A small frame's system call costs less than waking a thread for it; but
    // a chunk may be next in the queue once the message is out.
    return Pump();
  }
  AddPayload(key, payload, std::move(message));
  absl::MutexLock lock(&mutex_);
  if (need() != Need::kClosed) PumpSoonLocked();
}

void RoundOutbound::AddPayload(const PayloadKey& key,
                               const std::shared_ptr<RoundPayload>& payload,
                               std::string message) {
  std::shared_ptr<RoundPayload> replaced = payload;
  RoundQueue::Ticket ticket = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (need() == Need::kClosed) return;
    ticket = queue_.AddPayload(key, &replaced);
    if (!message.empty()) queue_.AddMessage(std::move(message), key);
  }
  if (ticket == 0) return;
  payload->Subscribe([this, weak = weak_from_this(), key, ticket](int chunk) {
    if (const auto self = weak.lock()) OnReady(key, ticket, chunk);
  });
}

void RoundOutbound::OnReady(const PayloadKey& key, RoundQueue::Ticket ticket,
                            int chunk) {
  absl::MutexLock lock(&mutex_);
  if (need() == Need::kClosed) return;
  queue_.OnReady(key, ticket, chunk);
  PumpSoonLocked();
}

void RoundOutbound::Forget(int64_t step) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;  // freed without the lock
  absl::MutexLock lock(&mutex_);
  dropped = queue_.Forget(step);
  const bool writes = IsWritingLocked() && written_key_.has_value() &&
                      written_key_->step < step;
  if (!writes) return;
  shared_->timers.RunAfter(
      kForgottenWrite,
      [this, self = shared_from_this(), write = begun_] { GiveUp(write); });
}

void RoundOutbound::GiveUp(int64_t write) {
  absl::MutexLock lock(&mutex_);
  if (!IsWritingLocked() || begun_ != write) return;
  gave_up_ = true;
  CancelCallLocked();
}

void RoundOutbound::Close() {
  RoundQueue dropped;  // freed without the lock
  absl::MutexLock lock(&mutex_);
  std::swap(dropped, queue_);
  CloseLocked(/*linger=*/false);
}

void RoundOutbound::OnConnectLocked() {
  hello_due_ = true;
  written_key_.reset();
}

std::optional<OutboundStream::Next> RoundOutbound::TakeNextLocked() {
  ++begun_;
  if (std::exchange(hello_due_, false)) {
    return Next{ToByteBuffer(EncodeRoundHello(header_))};
  }
  const std::optional<RoundQueue::Item> item = queue_.TakeNext();
  if (!item.has_value()) return std::nullopt;
  if (item->chunk >= 0) written_key_ = item->key;
  return Next{BufferOf(*item)};
}

grpc::ByteBuffer RoundOutbound::BufferOf(const RoundQueue::Item& item) const {
  FrameHeader header = header_;
  header.payload = item.key;
  if (item.key.has_value()) {
    header.payload_bytes = static_cast<int64_t>(item.payload->size());
    header.chunk_bytes = static_cast<int64_t>(item.payload->chunk_bytes());
  }
  ++shared_->counters.frames_sent;
  if (item.chunk < 0) {
    return ToByteBuffer(EncodeRoundMessage(header, item.message));
  }
  const absl::Span<uint8_t> chunk = item.payload->chunk(item.chunk);
  const auto bytes = static_cast<int64_t>(chunk.size());
  header.chunk = item.chunk;
  shared_->counters.bytes_sent += bytes;
  *options_.sent_bytes += bytes;
  const std::string prefix = EncodeRoundChunkPrefix(
      header, bytes, item.payload->chunk_hash(item.chunk), item.message);
  const grpc::Slice slices[] = {
      grpc::Slice(prefix),
      SharedSlice(chunk.data(), chunk.size(), item.payload)};
  return grpc::ByteBuffer(slices, 2);
}

void RoundOutbound::OnMessage(grpc::ByteBuffer& /*receipt*/) {
  bool tell = false;
  bool back_again = false;
  {
    absl::MutexLock lock(&mutex_);
    if (need() == Need::kClosed) return;
    if (!AnsweredLocked(/*reset_backoff=*/!bad_data_)) return;
    tell = std::exchange(told_, Told::kUp) != Told::kUp;
    back_again = std::exchange(was_up_, true);
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

OutboundStream::Ended RoundOutbound::OnEndedLocked(const absl::Status& status,
                                                   bool /*answered*/) {
  // The next data may be right: it is another part, or the peer made the
  // mistake.  But the error may also last, so backoff grows.
  bad_data_ = absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
  if (absl::IsUnavailable(status)) DropChannelLocked();
  queue_.OnBroken();
  // A refused link stays refused until it is up.
  const bool refused = IsRefusal(status) || told_ == Told::kRefused;
  const Told told = refused ? Told::kRefused : Told::kDown;
  // The end of a call that we gave up ourselves shows nothing about the peer.
  const bool tell =
      !std::exchange(gave_up_, false) && std::exchange(told_, told) != told;
  const bool closed = need() == Need::kClosed;
  return {!closed, [this, status, refused, tell, closed] {
            if (closed || !tell) return;
            // Members that end a run last see Aborted at every run's end.
            const bool over = absl::IsAborted(status);
            Log(over ? LogLevel::kInfo : LogLevel::kWarn,
                over ? "member does not take our stream"
                     : "member cannot be reached",
                {{"member", options_.peer.id.worker.value},
                 {"address", options_.peer.address},
                 {"run", ToText(options_.fence)},
                 {"why", status.ToString()}});
            options_.on_link(/*up=*/false, refused);
          }};
}

}  // namespace paceline
