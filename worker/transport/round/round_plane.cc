#include "worker/transport/round/round_plane.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"
#include "core/rpc/convert/round_convert.h"
#include "core/transfer/frame_codec.h"
#include "paceline/v1/round.grpc.pb.h"
#include "worker/transport/round/round_outbound.h"
#include "worker/transport/stream/inbound_stream.h"

namespace paceline {
namespace {

static_assert(kMaxRoundDataBytes == static_cast<int64_t>(kRoundChunkBytes));

std::string Text(const PayloadKey& key) {
  constexpr const char* kNames[] = {"", "part", "result"};
  return absl::StrCat(kNames[static_cast<int>(key.kind)], " of step ", key.step,
                      ", shard ", key.shard);
}

// Errors: NotFound  another process than `self` is meant
absl::Status CheckIsMeant(const MemberId& meant, const MemberId& self) {
  if (meant == self) return absl::OkStatus();
  return NotFound("this process is not the one of worker ", meant.worker.value,
                  " that is meant: incarnation ", meant.incarnation.value,
                  ", here is ", self.incarnation.value);
}

// --- Frames of one member ---------------------------------------------------

// Takes the frames of one member, from that member's current stream.
// Thread-compatible; calls the sink.
class RoundInbox {
 public:
  // `sink` and `counters` outlive this.
  RoundInbox(const MemberId& from, RoundSink& sink, PlaneCounters& counters)
      : from_(from), sink_(sink), counters_(counters) {}

  // Takes a chunk or a message.  slices: the source of `layout`.
  // Errors: InvalidArgument  no correct member would send it
  //         Aborted          the sink did not want a message's bytes when they
  //                          came, and wants them now: the sender must send
  //                          them again on its next stream
  //         DataLoss         a chunk's checksum is wrong
  absl::Status Take(absl::Span<const ByteSpan> slices,
                    const FrameLayout& layout) {
    if (!layout.message.has_value() && !layout.data.has_value()) {
      return absl::OkStatus();
    }
    ++counters_.frames_received;
    if (layout.data.has_value()) {
      PACELINE_RETURN_IF_ERROR(
          TakeChunk(slices, layout, *layout.header.payload));
    }
    return layout.message.has_value()
               ? TakeMessage(slices, *layout.message, layout.header)
               : absl::OkStatus();
  }

  // A new stream begins, which announces its payloads anew.  Returns payloads
  // that the caller must free without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Clear() {
    std::vector<std::shared_ptr<RoundPayload>> dropped;
    for (auto& [key, incoming] : payloads_) {
      dropped.push_back(std::move(incoming.payload));
    }
    payloads_.clear();
    return dropped;
  }

  // Drops parts and results of steps before `step` from now on.  Returns
  // payloads that the caller must free without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Forget(int64_t step) {
    forgotten_before_ = std::max(forgotten_before_, step);
    std::vector<std::shared_ptr<RoundPayload>> dropped;
    std::erase_if(payloads_, [&](auto& entry) {
      auto& [key, incoming] = entry;
      if (key.step >= step) return false;
      dropped.push_back(std::move(incoming.payload));
      return true;
    });
    return dropped;
  }

 private:
  // A peer that names more payloads than this at a time is refused.
  static constexpr size_t kMostPayloads = 4096;

  struct Incoming {
    int64_t bytes = 0;
    std::shared_ptr<RoundPayload> payload;  // null: no place yet
    bool dropped = false;                   // some of its bytes were dropped
  };

  absl::Status TakeChunk(absl::Span<const ByteSpan> slices,
                         const FrameLayout& layout, const PayloadKey& key) {
    counters_.bytes_received += layout.data->bytes;
    PACELINE_ASSIGN_OR_RETURN(const std::shared_ptr<RoundPayload> payload,
                              Find(key, layout.header.payload_bytes));
    if (payload == nullptr) {
      ++counters_.frames_dropped_old;
      return absl::OkStatus();
    }
    const FrameHeader& header = layout.header;
    if (header.chunk_bytes != static_cast<int64_t>(payload->chunk_bytes())) {
      return InvalidArgument("the ", Text(key), " comes in chunks of ",
                             header.chunk_bytes, " bytes, need ",
                             payload->chunk_bytes(),
                             ": its sender runs another version of Paceline");
    }
    if (payload->IsReady(header.chunk)) {
      ++counters_.frames_dropped_duplicate;
      return absl::OkStatus();
    }
    const uint64_t hash =
        CopyAndHash(slices, layout.data->offset, payload->chunk(header.chunk));
    if (hash != layout.checksum) {
      return DataLoss(
          "chunk ", header.chunk, " of the ", Text(key),
          " has another checksum than its sender said: send it again");
    }
    payload->MarkReady(header.chunk, hash);
    return absl::OkStatus();
  }

  absl::Status TakeMessage(absl::Span<const ByteSpan> slices,
                           const FrameRange& range, const FrameHeader& header) {
    v1::RoundMessage proto;
    if (!proto.ParseFromString(CopyBytes(slices, range.offset, range.bytes))) {
      return InvalidArgument("a message of ", range.bytes,
                             " bytes that is no message of a round");
    }
    PACELINE_ASSIGN_OR_RETURN(RoundMessage message,
                              FromProto(proto, header.fence.attempt, from_));
    std::shared_ptr<RoundPayload> payload;
    if (header.payload.has_value()) {
      const PayloadKey& key = *header.payload;
      PACELINE_RETURN_IF_ERROR(CheckDropped(key));
      PACELINE_ASSIGN_OR_RETURN(payload, Find(key, header.payload_bytes));
      if (payload != nullptr && !payload->complete()) {
        return InvalidArgument(
            "a message before the bytes that belong to it, the ", Text(key));
      }
    }
    sink_.OnMessage(std::move(message), std::move(payload));
    return absl::OkStatus();
  }

  // Aborted: bytes of that kind and step were dropped, but are wanted now.
  absl::Status CheckDropped(const PayloadKey& of) {
    for (auto& [key, incoming] : payloads_) {
      if (key.kind != of.kind || key.step != of.step || !incoming.dropped) {
        continue;
      }
      PACELINE_ASSIGN_OR_RETURN(const std::shared_ptr<RoundPayload> payload,
                                Find(key, incoming.bytes));
      if (payload == nullptr || payload->complete()) continue;
      return Aborted("the ", Text(key),
                     " came too early and was dropped: send it again");
    }
    return absl::OkStatus();
  }

  // Returns the payload that takes the bytes of `key`; null: none.
  absl::StatusOr<std::shared_ptr<RoundPayload>> Find(const PayloadKey& key,
                                                     int64_t bytes) {
    if (key.step < forgotten_before_) return nullptr;
    const auto found = payloads_.find(key);
    if (found != payloads_.end()) {
      if (found->second.bytes != bytes) {
        return InvalidArgument("the ", Text(key), " has ", bytes,
                               " bytes now, and had ", found->second.bytes);
      }
      if (found->second.payload != nullptr) return found->second.payload;
    } else if (payloads_.size() >= kMostPayloads) {
      return InvalidArgument("more than ", kMostPayloads,
                             " payloads at a time");
    }
    PACELINE_ASSIGN_OR_RETURN(
        std::shared_ptr<RoundPayload> payload,
        sink_.OnPayload(from_, key, static_cast<size_t>(bytes)));
    PACELINE_CHECK(
        payload == nullptr || static_cast<int64_t>(payload->size()) == bytes,
        absl::StrCat("memory for ", bytes, " bytes has another size"));
    Incoming& incoming = payloads_[key];
    incoming.bytes = bytes;
    incoming.payload = payload;
    incoming.dropped = incoming.dropped || payload == nullptr;
    return payload;
  }

  const MemberId from_;
  RoundSink& sink_;
  PlaneCounters& counters_;
  std::map<PayloadKey, Incoming> payloads_;
  int64_t forgotten_before_ = 0;
};

// --- The open group ---------------------------------------------------------

// The open round group: its peers, and the frames to and from them.
// Thread-safe.  The sink is called on gRPC's threads or the plane's, never on a
// caller's, and without a lock.
class RoundRun final : public RoundTransport,
                       public PlaneRun,
                       public std::enable_shared_from_this<RoundRun> {
 public:
  // `sink` and `plane` outlive Close().
  RoundRun(const Fence& fence, const MemberId& self, RoundSink& sink,
           Plane& plane, std::shared_ptr<PlaneShared> shared)
      : fence_(fence),
        self_(self),
        sink_(sink),
        plane_(plane),
        shared_(std::move(shared)) {}

  // RoundTransport.
  void SetPeers(const std::vector<GroupWorker>& peers) override {
    std::vector<std::shared_ptr<RoundOutbound>> added, gone;
    std::set<std::shared_ptr<InboundStream>> resumed, ended;
    std::vector<std::shared_ptr<Sender>> dropped;  // freed without the lock
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) return;
      std::map<MemberId, std::shared_ptr<RoundOutbound>> now;
      for (const GroupWorker& peer : peers) {
        if (peer.id == self_) continue;
        auto& place = now[peer.id];
        const auto before = peers_.find(peer.id);
        if (before != peers_.end() &&
            before->second->peer().address == peer.address) {
          place = before->second;
          continue;
        }
        auto& sent = sent_[peer.id.worker];
        if (sent == nullptr) sent = std::make_shared<std::atomic<int64_t>>(0);
        place = std::make_shared<RoundOutbound>(
            RoundOutboundOptions{
                fence_, self_, peer, sent,
                [weak = weak_from_this(), id = peer.id](bool up, bool refused) {
                  if (const auto self = weak.lock()) {
                    self->OnLink(id, up, refused);
                  }
                }},
            shared_);
        added.push_back(place);
      }
      peers_.swap(now);
      for (auto& [id, stream] : now) {
        const auto kept = peers_.find(id);
        if (kept != peers_.end() && kept->second == stream) continue;
        gone.push_back(std::move(stream));
      }
      std::erase_if(senders_,
                    [&](auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                      auto& [id, sender] = entry;
                      if (peers_.contains(id)) return false;
                      if (sender->stream != nullptr)
                        ended.insert(sender->stream);
                      dropped.push_back(std::move(sender));
                      return true;
                    });
      resumed.swap(held_);
    }
    for (const auto& stream : gone) stream->Close();
    for (const auto& stream : ended) {
      stream->End(Aborted("the sender is no member of this group"));
    }
    for (const auto& stream : added) stream->Start();
    for (const auto& stream : resumed) ResumeSoon(stream);
  }
  void SendAhead(const MemberId& to, const PayloadKey& key,
                 std::shared_ptr<RoundPayload> payload) override {
    if (const auto peer = Find(to)) peer->SendAhead(key, std::move(payload));
  }
  void Send(const MemberId& to, RoundMessage message, const PayloadKey& key,
            std::shared_ptr<RoundPayload> payload) override {
    if (const auto peer = Find(to)) {
      peer->Send(ToProto(message).SerializeAsString(), key, std::move(payload));
    }
  }
  void Forget(int64_t step) override {
    std::vector<std::shared_ptr<RoundOutbound>> peers;
    std::vector<std::vector<std::shared_ptr<RoundPayload>>> dropped;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [id, peer] : peers_) peers.push_back(peer);
      for (const auto& [id, sender] : senders_) {
        sender->forget_before = std::max(sender->forget_before, step);
        if (!sender->busy) dropped.push_back(sender->inbox.Forget(step));
      }
    }
    for (const auto& peer : peers) peer->Forget(step);
  }
  std::map<WorkerId, int64_t> SentBytes() const override {
    absl::MutexLock lock(&mutex_);
    std::map<WorkerId, int64_t> bytes;
    for (const auto& [worker, sent] : sent_) bytes[worker] = *sent;
    return bytes;
  }
  // Do not call it on a thread that is inside the sink.
  void Close() override {
    plane_.CloseRun(*this);
    std::map<MemberId, std::shared_ptr<RoundOutbound>> peers;
    std::map<MemberId, std::shared_ptr<Sender>> senders;
    std::set<std::shared_ptr<InboundStream>> held;
    std::map<std::shared_ptr<InboundStream>, MemberId> streams;
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
      peers.swap(peers_);
      held.swap(held_);
      const auto quiet = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return sink_calls_ == 0;
      };
      mutex_.Await(absl::Condition(&quiet));
      senders.swap(senders_);
      streams.swap(streams_);
    }
    for (const auto& [id, peer] : peers) peer->Close();
    for (const auto& [id, sender] : senders) {
      if (sender->stream == nullptr) continue;
      sender->stream->End(Aborted("this run is over here"));
    }
    // They will find no run, or the next one.
    for (const auto& stream : held) ResumeSoon(stream);
  }

  // PlaneRun.
  // Errors: as RoundInbox::Take
  //         Aborted   another stream has replaced this one
  //         NotFound  for another process
  absl::StatusOr<InboundStream::Reading> OnFrame(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> slices, FrameLayout layout) override {
    PACELINE_RETURN_IF_ERROR(CheckIsMeant(layout.header.to, self_));
    PACELINE_ASSIGN_OR_RETURN(const Taking taking,
                              BeginTake(stream, layout.header.from));
    if (taking.sender == nullptr) return taking.reading;
    if (taking.first) stream->SendReceipt();
    const absl::Status taken = taking.sender->inbox.Take(slices, layout);
    EndTake(stream, *taking.sender);
    PACELINE_RETURN_IF_ERROR(taken);
    return InboundStream::Reading::kGoOn;
  }
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream) override {
    // Freed without the lock.
    std::vector<std::shared_ptr<RoundPayload>> dropped;
    absl::MutexLock lock(&mutex_);
    held_.erase(stream);
    const auto known = streams_.find(stream);
    if (known == streams_.end()) return;
    const auto found = senders_.find(known->second);
    streams_.erase(known);
    if (found == senders_.end()) return;
    Sender& sender = *found->second;
    if (sender.waiting == stream) sender.waiting = nullptr;
    if (sender.stream != stream) return;
    sender.stream = nullptr;
    if (!sender.busy) dropped = sender.inbox.Clear();
  }

 private:
  // Frames of one sender are taken one after the other over all its streams, so
  // that a chunk has one writer.
  struct Sender {
    explicit Sender(RoundInbox i) : inbox(std::move(i)) {}

    RoundInbox inbox;  // used by the thread that set busy; else under the lock
    bool busy = false;
    std::shared_ptr<InboundStream> stream;   // the current one; null: none
    std::shared_ptr<InboundStream> waiting;  // waits for the end of busy
    int64_t forget_before = 0;
  };
  struct Taking {
    InboundStream::Reading reading = InboundStream::Reading::kHold;
    std::shared_ptr<Sender> sender;  // now busy; null: hold
    bool first = false;              // the first frame of this stream
  };

  absl::StatusOr<Taking> BeginTake(const std::shared_ptr<InboundStream>& stream,
                                   const MemberId& from) {
    // Freed without the lock.
    std::vector<std::shared_ptr<RoundPayload>> dropped;
    std::shared_ptr<InboundStream> replaced;
    const absl::Cleanup end_replaced = [&replaced] {
      if (replaced == nullptr) return;
      replaced->End(Aborted("another stream of this sender came"));
    };
    Taking taking;
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) return Aborted("this run is over here");
      if (const auto known = streams_.find(stream);
          known != streams_.end() && known->second != from) {
        return InvalidArgument("a stream of worker ",
                               known->second.worker.value,
                               " with a frame of worker ", from.worker.value,
                               " or of another incarnation of it");
      }
      if (peers_.find(from) == peers_.end()) {
        if (streams_.find(stream) != streams_.end()) {
          return Aborted("the sender is no member of this group");
        }
        held_.insert(stream);
        return taking;
      }
      auto& sender = senders_[from];
      if (sender == nullptr) {
        sender = std::make_shared<Sender>(
            RoundInbox(from, sink_, shared_->counters));
      }
      if (sender->stream != stream) {
        if (streams_.count(stream) > 0) {
          return Aborted("another stream of this sender came later");
        }
        if (sender->busy) {
          replaced = std::exchange(sender->waiting, stream);
          if (replaced == stream) replaced = nullptr;
          return taking;
        }
        replaced = std::exchange(sender->stream, stream);
        dropped = sender->inbox.Clear();
        streams_[stream] = from;
        taking.first = true;
      }
      sender->busy = true;
      ++sink_calls_;
      taking.sender = sender;
    }
    return taking;
  }

  void EndTake(const std::shared_ptr<InboundStream>& stream, Sender& sender) {
    // Freed without the lock.
    std::vector<std::shared_ptr<RoundPayload>> dropped;
    std::shared_ptr<InboundStream> waiting;
    {
      absl::MutexLock lock(&mutex_);
      sender.busy = false;
      dropped = sender.stream == stream
                    ? sender.inbox.Forget(sender.forget_before)
                    : sender.inbox.Clear();
      waiting = std::move(sender.waiting);
      --sink_calls_;
    }
    if (waiting != nullptr) ResumeSoon(std::move(waiting));
  }

  std::shared_ptr<RoundOutbound> Find(const MemberId& to) {
    absl::MutexLock lock(&mutex_);
    const auto found = peers_.find(to);
    return found == peers_.end() ? nullptr : found->second;
  }

  void OnLink(const MemberId& peer, bool up, bool refused) {
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) return;
      ++sink_calls_;
    }
    sink_.OnLink(peer, up, refused);
    absl::MutexLock lock(&mutex_);
    --sink_calls_;
  }

  // Resumes the stream on the plane's thread.
  void ResumeSoon(std::shared_ptr<InboundStream> stream) {
    shared_->timers.Run([stream = std::move(stream)] { stream->Resume(); });
  }

  // Constant after construction.
  const Fence fence_;
  const MemberId self_;
  RoundSink& sink_;
  Plane& plane_;
  const std::shared_ptr<PlaneShared> shared_;

  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int sink_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<MemberId, std::shared_ptr<RoundOutbound>> peers_
      ABSL_GUARDED_BY(mutex_);
  // Bytes sent to each worker; their streams add to these.
  std::map<WorkerId, std::shared_ptr<std::atomic<int64_t>>> sent_
      ABSL_GUARDED_BY(mutex_);
  // Shared with the thread that takes a frame, which may outlive the peer.
  std::map<MemberId, std::shared_ptr<Sender>> senders_ ABSL_GUARDED_BY(mutex_);
  // By stream, the member that has sent on it.  The shared pointer keeps the
  // stream, so that no other stream gets its address.
  std::map<std::shared_ptr<InboundStream>, MemberId> streams_
      ABSL_GUARDED_BY(mutex_);
  // Streams of senders that are no peers yet.
  std::set<std::shared_ptr<InboundStream>> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

// --- The plane --------------------------------------------------------------

// The round plane between groups, and the open group.  Thread-safe.
class RoundPlane::State final
    : public Plane,
      public v1::Round::WithRawCallbackMethod_Exchange<v1::Round::Service> {
 public:
  // gRPC's threads take all frames, small ones too: they are few, and must not
  // wait behind another stream's.
  explicit State(const PlaneOptions& options)
      : Plane(options,
              {"round-plane", /*small_bytes=*/0, /*ends_older=*/true}) {}

  // As RoundPlane.
  absl::StatusOr<std::shared_ptr<RoundTransport>> Open(const Fence& fence,
                                                       const MemberId& self,
                                                       RoundSink* sink) {
    const auto run =
        std::make_shared<RoundRun>(fence, self, *sink, *this, shared_);
    PACELINE_RETURN_IF_ERROR(OpenRun(fence, run));
    // On the plane's thread, so that the sink is not called before this
    // returns.
    for (const auto& stream : streams()) {
      shared_->timers.Run([stream] { stream->Resume(); });
    }
    const std::shared_ptr<void> open(
        nullptr, [plane = shared_from_this(), run](void*) { run->Close(); });
    return std::shared_ptr<RoundTransport>(open, run.get());
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    return Accept(context->peer());
  }
  grpc::Service& service() override { return *this; }

 private:
  // Plane.
  // Errors: NotFound  for another process, whatever run is open
  absl::StatusOr<FrameLayout> Parse(
      absl::Span<const ByteSpan> message) override {
    PACELINE_ASSIGN_OR_RETURN(FrameLayout layout, ParseRoundFrame(message));
    const Incarnation own = shared_->options.incarnation;
    if (own.value != 0) {
      const MemberId& to = layout.header.to;
      PACELINE_RETURN_IF_ERROR(CheckIsMeant(to, {to.worker, own}));
    }
    return layout;
  }
  void EndRun(std::shared_ptr<PlaneRun> run,
              const absl::Status& /*why*/) override {
    if (run != nullptr) static_cast<RoundRun&>(*run).Close();
  }
};

RoundPlane::RoundPlane(const PlaneOptions& options)
    : PlaneOwner(std::make_shared<State>(options)) {}

absl::StatusOr<std::shared_ptr<RoundTransport>> RoundPlane::Open(
    const Fence& fence, const MemberId& self, RoundSink* sink) {
  return static_cast<State&>(*plane_).Open(fence, self, sink);
}

}  // namespace paceline
