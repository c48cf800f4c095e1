#include "tests/support/pipeline/memory_round_transport.h"

#include <algorithm>
#include <cstring>

namespace paceline {

// A member's side of the network.  Thread-safe.
class MemoryRoundTransport final : public RoundTransport {
 public:
  MemoryRoundTransport(MemoryRoundNetwork& network, const MemberId& self)
      : network_(network), self_(self) {}
  ~MemoryRoundTransport() override { network_.Close(self_); }

  void SetPeers(const std::vector<GroupWorker>& peers) override {
    network_.SetPeers(self_, peers);
  }
  void SendAhead(const MemberId& to, const PayloadKey& key,
                 std::shared_ptr<RoundPayload> payload) override {
    network_.SendAhead({self_, to}, key, std::move(payload));
  }
  void Send(const MemberId& to, RoundMessage message, const PayloadKey& key,
            std::shared_ptr<RoundPayload> payload) override {
    const bool has_payload = payload != nullptr;
    network_.Send({self_, to}, {std::move(message), key, has_payload},
                  std::move(payload));
  }
  void Forget(int64_t step) override { network_.Forget(self_, step); }
  void Close() override { network_.Close(self_); }

 private:
  MemoryRoundNetwork& network_;
  const MemberId self_;
};

MemoryRoundNetwork::MemoryRoundNetwork(uint64_t seed)
    : random_(seed), wire_("wire", [this] { Run(); }) {}

MemoryRoundNetwork::~MemoryRoundNetwork() {
  {
    const SteadyLock lock(&mutex_);
    stopping_ = true;
  }
  wire_.Join();
}

std::unique_ptr<RoundTransport> MemoryRoundNetwork::Connect(
    const MemberId& self, RoundSink* sink) {
  const SteadyLock lock(&mutex_);
  endpoints_[self].sink = sink;
  return std::make_unique<MemoryRoundTransport>(*this, self);
}

void MemoryRoundNetwork::SetFaults(const MemoryRoundFaults& faults) {
  const SteadyLock lock(&mutex_);
  faults_ = faults;
}

void MemoryRoundNetwork::SetHook(Hook hook) {
  const SteadyLock lock(&mutex_);
  hook_ = std::move(hook);
}

bool MemoryRoundNetwork::Chance(double probability) {
  return probability > 0 && random_.Unit() < probability;
}

// --- Links ------------------------------------------------------------------

void MemoryRoundNetwork::SetPeers(const MemberId& self,
                                  const std::vector<GroupWorker>& peers) {
  const SteadyLock lock(&mutex_);
  Endpoint& endpoint = endpoints_[self];
  std::set<MemberId> now;
  for (const GroupWorker& peer : peers) {
    now.insert(peer.id);
    const auto other = endpoints_.find(peer.id);
    if (other == endpoints_.end() || peer.id == self ||
        endpoint.peers.count(peer.id) > 0) {
      continue;
    }
    const bool gone = other->second.killed;
    notices_.push_back({self, peer.id, /*up=*/!gone, /*refused=*/gone});
  }
  for (const MemberId& peer : endpoint.peers) {
    if (now.count(peer) == 0) links_.erase({self, peer});
  }
  endpoint.peers = std::move(now);
}

void MemoryRoundNetwork::SetLink(const MemberId& a, const MemberId& b,
                                 bool up) {
  const SteadyLock lock(&mutex_);
  for (const LinkId& id : {LinkId{a, b}, LinkId{b, a}}) {
    Link& link = links_[id];
    link = Link{};
    link.up = up;
    notices_.push_back({id.first, id.second, up, /*refused=*/false});
  }
}

void MemoryRoundNetwork::Kill(const MemberId& member) {
  const SteadyLock lock(&mutex_);
  endpoints_[member].killed = true;
  for (auto& [id, endpoint] : endpoints_) {
    links_.erase({member, id});
    links_.erase({id, member});
    if (endpoint.peers.count(member) > 0) {
      notices_.push_back({id, member, /*up=*/false, /*refused=*/true});
    }
  }
}

void MemoryRoundNetwork::Close(const MemberId& self) {
  const SteadyLock lock(&mutex_);
  endpoints_[self].sink = nullptr;
  std::erase_if(links_,
                [&self](const auto& link) { return link.first.first == self; });
  const auto quiet = [this, &self]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return called_ != self;
  };
  mutex_.Await(absl::Condition(&quiet));
}

bool MemoryRoundNetwork::AwaitCarried(int64_t bytes,
                                      absl::Duration longest) const {
  const auto there = [this, bytes]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return bytes_ >= bytes;
  };
  const SteadyLock lock(&mutex_);
  return mutex_.AwaitFor(absl::Condition(&there), longest);
}

// --- What is sent -----------------------------------------------------------

bool MemoryRoundNetwork::IsOpen(const LinkId& id) const {
  const auto from = endpoints_.find(id.first);
  const auto to = endpoints_.find(id.second);
  const auto link = links_.find(id);
  return from != endpoints_.end() && to != endpoints_.end() &&
         from->second.sink != nullptr && to->second.sink != nullptr &&
         !from->second.killed && !to->second.killed &&
         from->second.peers.count(id.second) > 0 &&
         (link == links_.end() || link->second.up);
}

void MemoryRoundNetwork::SendAhead(const LinkId& id, const PayloadKey& key,
                                   std::shared_ptr<RoundPayload> payload) {
  {
    const SteadyLock lock(&mutex_);
    if (!IsOpen(id)) return;
    const auto [transfer, fresh] = links_[id].transfers.try_emplace(key);
    Transfer& known = transfer->second;
    // A payload that was not wanted goes out again, as over gRPC.
    if (!fresh && !(known.done && known.into == nullptr)) return;
    if (!fresh) known = Transfer();
    known.payload = payload;
  }
  payload->Subscribe([this, id, key](int chunk) {
    const SteadyLock lock(&mutex_);
    const auto link = links_.find(id);
    if (link == links_.end()) return;
    const auto transfer = link->second.transfers.find(key);
    if (transfer == link->second.transfers.end()) return;
    transfer->second.ready.push_back(chunk);
    ++changes_;
  });
}

void MemoryRoundNetwork::Send(const LinkId& id, Letter letter,
                              std::shared_ptr<RoundPayload> payload) {
  if (payload != nullptr) SendAhead(id, letter.key, std::move(payload));
  const SteadyLock lock(&mutex_);
  if (!IsOpen(id) || Chance(faults_.lose)) return;
  std::deque<Letter>& letters = links_[id].letters;
  ++changes_;
  if (Chance(faults_.repeat)) letters.push_back(letter);
  if (!letters.empty() && Chance(faults_.overtake)) {
    letters.insert(std::prev(letters.end()), std::move(letter));
  } else {
    letters.push_back(std::move(letter));
  }
}

void MemoryRoundNetwork::Forget(const MemberId& self, int64_t step) {
  std::vector<Transfer> dropped;  // freed without the lock
  const SteadyLock lock(&mutex_);
  const auto is_past = [step](const PayloadKey& key) {
    return key.step < step;
  };
  for (auto& [id, link] : links_) {
    if (id.first != self) continue;
    std::erase_if(link.transfers, [&](auto& each) {
      if (!is_past(each.first)) return false;
      dropped.push_back(std::move(each.second));
      return true;
    });
    std::erase_if(link.letters, [&](const Letter& letter) {
      return letter.has_payload && is_past(letter.key);
    });
  }
}

// --- The wire ---------------------------------------------------------------

void MemoryRoundNetwork::Run() {
  const auto work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || changes_ != seen_ || !notices_.empty();
  };
  for (;;) {
    std::vector<LinkId> links;
    {
      const SteadyLock lock(&mutex_);
      mutex_.Await(absl::Condition(&work));
      if (stopping_) return;
      seen_ = changes_;
      for (const auto& [id, link] : links_) links.push_back(id);
    }
    TellNotices();
    for (bool moved = true; moved;) {
      moved = false;
      for (const LinkId& id : links) {
        moved = CarryLetter(id) || moved;
        moved = CarryChunk(id) || moved;
      }
    }
  }
}

RoundSink* MemoryRoundNetwork::BeginCall(const MemberId& member) {
  const auto endpoint = endpoints_.find(member);
  if (endpoint == endpoints_.end() || endpoint->second.sink == nullptr ||
      endpoint->second.killed) {
    return nullptr;
  }
  called_ = member;
  return endpoint->second.sink;
}

void MemoryRoundNetwork::EndCall() {
  const SteadyLock lock(&mutex_);
  called_ = {};
}

void MemoryRoundNetwork::TellNotices() {
  for (;;) {
    Notice notice;
    RoundSink* sink = nullptr;
    {
      const SteadyLock lock(&mutex_);
      if (notices_.empty()) return;
      notice = notices_.front();
      notices_.pop_front();
      if (endpoints_[notice.to].peers.count(notice.peer) == 0) continue;
      sink = BeginCall(notice.to);
    }
    if (sink == nullptr) continue;
    sink->OnLink(notice.peer, notice.up, notice.refused);
    EndCall();
  }
}

bool MemoryRoundNetwork::MayTravel(const LinkId& id) const {
  return IsOpen(id) &&
         endpoints_.find(id.second)->second.peers.count(id.first) > 0;
}

// The first one whose bytes are there, if it has any.
bool MemoryRoundNetwork::CarryLetter(const LinkId& id) {
  Letter letter;
  std::shared_ptr<RoundPayload> payload;
  RoundSink* sink = nullptr;
  Hook hook;
  {
    const SteadyLock lock(&mutex_);
    const auto link = links_.find(id);
    if (link == links_.end() || !MayTravel(id)) return false;
    std::deque<Letter>& letters = link->second.letters;
    const auto found =
        std::find_if(letters.begin(), letters.end(), [&](const Letter& each) {
          if (!each.has_payload) return true;
          const auto transfer = link->second.transfers.find(each.key);
          return transfer != link->second.transfers.end() &&
                 transfer->second.done;
        });
    if (found == letters.end()) return false;
    letter = std::move(*found);
    letters.erase(found);
    if (letter.has_payload) payload = link->second.transfers[letter.key].into;
    hook = hook_;
  }
  if (hook && !hook(id.second, letter.message)) return true;
  {
    const SteadyLock lock(&mutex_);
    sink = IsOpen(id) ? BeginCall(id.second) : nullptr;
  }
  if (sink == nullptr) return false;
  sink->OnMessage(std::move(letter.message), std::move(payload));
  EndCall();
  return true;
}

bool MemoryRoundNetwork::IsEmpty(const Transfer& transfer) {
  return transfer.payload->chunks() == 0;
}

bool MemoryRoundNetwork::CarryChunk(const LinkId& id) {
  Transfer moving;
  RoundSink* sink = nullptr;
  int chunk = 0;
  {
    const SteadyLock lock(&mutex_);
    const auto link = links_.find(id);
    if (link == links_.end() || !MayTravel(id)) return false;
    auto& transfers = link->second.transfers;
    const auto found =
        std::find_if(transfers.begin(), transfers.end(), [](const auto& each) {
          return each.second.payload != nullptr &&
                 (!each.second.ready.empty() || IsEmpty(each.second));
        });
    if (found == transfers.end()) return false;
    if (!IsEmpty(found->second)) {
      chunk = found->second.ready.front();
      found->second.ready.pop_front();
    }
    moving = found->second;
    moving.key = found->first;
    sink = BeginCall(id.second);
  }
  if (sink == nullptr) return false;
  if (!moving.asked) {
    auto into = sink->OnPayload(id.first, moving.key, moving.payload->size());
    // A stream that ends with an error begins anew, and ends again: nothing of
    // these bytes ever comes.
    moving.refused = !into.ok();
    if (into.ok()) moving.into = *std::move(into);
  }
  absl::Span<const uint8_t> bytes;
  if (!IsEmpty(moving)) bytes = moving.payload->chunk(chunk);
  if (!bytes.empty() && moving.into != nullptr &&
      !moving.into->IsReady(chunk)) {
    std::memcpy(moving.into->chunk(chunk).data(), bytes.data(), bytes.size());
    moving.into->MarkReady(chunk, moving.payload->chunk_hash(chunk));
  }
  EndCall();
  const std::shared_ptr<RoundPayload> dropped = std::move(moving.payload);
  const SteadyLock lock(&mutex_);
  bytes_ += static_cast<int64_t>(bytes.size());
  const auto link = links_.find(id);
  if (link == links_.end()) return true;
  const auto transfer = link->second.transfers.find(moving.key);
  if (transfer == link->second.transfers.end()) return true;
  transfer->second.asked = true;
  transfer->second.into = moving.into;
  transfer->second.sent += bytes.empty() ? 0 : 1;
  const bool whole = transfer->second.sent == dropped->chunks();
  transfer->second.done = whole && !moving.refused;
  // Whoever lent the memory may have it back.
  if (whole) transfer->second.payload.reset();
  return true;
}

}  // namespace paceline
