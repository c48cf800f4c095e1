#include "worker/transport/round/round_run.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/base/errors.h"
#include "core/rpc/convert/round_convert.h"

namespace paceline {

absl::Status CheckIsMeant(const MemberId& meant, const MemberId& self) {
  if (meant == self) return absl::OkStatus();
  return NotFound("this process is not the one of worker ", meant.worker.value,
                  " that is meant: incarnation ", meant.incarnation.value,
                  ", here is ", self.incarnation.value);
}

RoundRun::RoundRun(const Fence& fence, const MemberId& self, RoundSink& sink,
                   std::shared_ptr<PlaneShared> shared)
    : fence_(fence), self_(self), sink_(sink), shared_(std::move(shared)) {}

void RoundRun::SetPeers(const std::vector<GroupWorker>& peers) {
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
      if (const auto kept = peers_.find(id);
          kept != peers_.end() && kept->second == stream) {
        continue;
      }
      gone.push_back(std::move(stream));
    }
    for (auto at = senders_.begin(); at != senders_.end();) {
      if (peers_.count(at->first) > 0) {
        ++at;
        continue;
      }
      if (at->second->stream != nullptr) ended.insert(at->second->stream);
      dropped.push_back(std::move(at->second));
      at = senders_.erase(at);
    }
    resumed.swap(held_);
  }
  for (const auto& stream : gone) stream->Close();
  for (const auto& stream : ended) {
    stream->End(Aborted("the sender is no member of this group"));
  }
  for (const auto& stream : added) stream->Start();
  for (const auto& stream : resumed) ResumeSoon(stream);
}

void RoundRun::ResumeSoon(std::shared_ptr<InboundStream> stream) {
  shared_->timers.Run([stream = std::move(stream)] { stream->Resume(); });
}

std::shared_ptr<RoundOutbound> RoundRun::Find(const MemberId& to) {
  absl::MutexLock lock(&mutex_);
  const auto found = peers_.find(to);
  return found == peers_.end() ? nullptr : found->second;
}

void RoundRun::SendAhead(const MemberId& to, const PayloadKey& key,
                         std::shared_ptr<RoundPayload> payload) {
  if (const auto peer = Find(to)) peer->SendAhead(key, std::move(payload));
}

void RoundRun::Send(const MemberId& to, const RoundMessage& message,
                    const PayloadKey& key,
                    std::shared_ptr<RoundPayload> payload) {
  if (const auto peer = Find(to)) {
    peer->Send(ToProto(message).SerializeAsString(), key, std::move(payload));
  }
}

void RoundRun::Forget(int64_t step) {
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

std::map<WorkerId, int64_t> RoundRun::SentBytes() const {
  absl::MutexLock lock(&mutex_);
  std::map<WorkerId, int64_t> bytes;
  for (const auto& [worker, sent] : sent_) bytes[worker] = *sent;
  return bytes;
}

void RoundRun::Close() {
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

bool RoundRun::BeginSinkCall() {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  ++sink_calls_;
  return true;
}

void RoundRun::EndSinkCall() {
  absl::MutexLock lock(&mutex_);
  --sink_calls_;
}

void RoundRun::OnLink(const MemberId& peer, bool up, bool refused) {
  if (!BeginSinkCall()) return;
  sink_.OnLink(peer, up, refused);
  EndSinkCall();
}

absl::StatusOr<FrameSink::Reading> RoundRun::OnFrame(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> slices, FrameLayout layout) {
  PACELINE_RETURN_IF_ERROR(CheckIsMeant(layout.header.to, self_));
  PACELINE_ASSIGN_OR_RETURN(const Taking taking,
                            BeginTake(stream, layout.header.from));
  if (taking.sender == nullptr) return taking.reading;
  if (taking.first) stream->SendReceipt();
  const absl::Status taken = taking.sender->inbox.Take(slices, layout);
  EndTake(stream, *taking.sender);
  PACELINE_RETURN_IF_ERROR(taken);
  return FrameSink::Reading::kGoOn;
}

absl::StatusOr<RoundRun::Taking> RoundRun::BeginTake(
    const std::shared_ptr<InboundStream>& stream, const MemberId& from) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;  // freed without the lock
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
      return InvalidArgument("a stream of worker ", known->second.worker.value,
                             " with a frame of worker ", from.worker.value,
                             " or of another "
                             "incarnation of it");
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
      sender =
          std::make_shared<Sender>(RoundInbox(from, sink_, shared_->counters));
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

void RoundRun::EndTake(const std::shared_ptr<InboundStream>& stream,
                       Sender& sender) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;  // freed without the lock
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

void RoundRun::OnStreamDone(const std::shared_ptr<InboundStream>& stream) {
  std::vector<std::shared_ptr<RoundPayload>> dropped;  // freed without the lock
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

}  // namespace paceline
