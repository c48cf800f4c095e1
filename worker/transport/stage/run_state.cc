#include "worker/transport/stage/run_state.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr int64_t kPooledBytes = 64 << 20;
// Frames are handed on together up to this many bytes: waking the compute
// thread for every small frame would cost more than the frames do.
constexpr int64_t kStagedBytes = 256 << 10;

absl::Status NoBoundary(absl::string_view what, FrameKind kind,
                        int32_t boundary) {
  return NotFound("no ", FrameKindName(kind), " ", what, " at boundary ",
                  boundary, " of this worker");
}

}  // namespace

RunState::RunState(RunWiring wiring, std::shared_ptr<PlaneShared> shared)
    : wiring_(std::move(wiring)),
      shared_(std::move(shared)),
      gate_(wiring_, shared_),
      pool_(kPooledBytes) {}

void RunState::Wire() {
  std::map<std::pair<WorkerId, FrameKind>, OutboundOptions> streams;
  const auto stages = static_cast<int>(wiring_.stages.size());
  for (const auto& [kind, boundary] : Crossings(stages, wiring_.ties)) {
    const FrameEnds ends = Ends(kind, boundary);
    const bool tied = boundary >= stages - 1;
    const bool replicas = kind == FrameKind::kReplica;
    if (replicas && (!IsMine(ends.to) || !ReplicasTrain(ends.to))) continue;
    // A tie inside one worker sends no frames.
    if (tied && !replicas && IsMine(ends.from) && IsMine(ends.to)) continue;
    if (IsMine(ends.to)) AddIncoming(kind, boundary);
    if (IsMine(ends.from) && (replicas || !IsMine(ends.to))) {
      for (const WorkerAddress& neighbour : wiring_.stages[ends.to].replicas) {
        if (neighbour.worker == wiring_.self) continue;
        OutboundOptions& options = streams[{neighbour.worker, kind}];
        options.kind = kind;
        options.neighbour = neighbour.worker;
        options.address = neighbour.address;
        options.route = OwnReplica(ends.from);
        options.bounds[boundary] = BoundOf(wiring_.bounds, kind, boundary);
        // Both stages must have the same value, to the last bit.
        options.codec = tied ? Codec::kRaw : wiring_.codec;
      }
    }
  }
  for (auto& [key, options] : streams) {
    options.fence = wiring_.fence;
    options.on_refused = [weak = weak_from_this()](const absl::Status& why) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->End(why, /*linger=*/false);
      self->gate_.Cancel(why);
    };
    options.on_link = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->OnLink();
    };
    outbound_[key] =
        std::make_shared<StageOutbound>(std::move(options), shared_);
  }
}

void RunState::AddIncoming(FrameKind kind, int32_t boundary) {
  const int bound = BoundOf(wiring_.bounds, kind, boundary);
  const bool replicas = kind == FrameKind::kReplica;
  if (IsMine(Ends(kind, boundary).from) && !replicas) {
    mailbox_.AddBoundary(kind, boundary, SendLimit(bound));
    return;
  }
  const CreditLedger ledger(
      bound, wiring_.acknowledges_at_once ? 1 : CreditLedger::kKeptBytes);
  const auto senders = static_cast<int>(
      wiring_.stages[Ends(kind, boundary).from].replicas.size());
  mailbox_.AddBoundary(kind, boundary, senders * ledger.window());
  absl::MutexLock lock(&mutex_);
  for (int sender = 0; sender < senders; ++sender) {
    if (replicas && sender == OwnReplica(Ends(kind, boundary).to)) continue;
    inbound_.try_emplace(
        {boundary, sender},
        Inbound{kind, Expectation(boundary), ledger, nullptr, {}, 0});
  }
}

BoundaryExpectation RunState::Expectation(int32_t boundary) const {
  const size_t cuts = wiring_.boundaries.size();
  const auto index = static_cast<size_t>(boundary);
  if (index < cuts) {
    return {wiring_.boundaries[index], wiring_.micro_batch,
            wiring_.label_shape};
  }
  const size_t ties = wiring_.ties.size();
  if (index < cuts + ties) {
    return {{{DType::kF32, wiring_.ties[index - cuts].shape}}, 0, {}};
  }
  const StageWiring& stage = wiring_.stages[index - cuts - ties];
  return {{{DType::kU8, {stage.replica_frame_bytes}}}, 0, {}};
}

FrameEnds RunState::Ends(FrameKind kind, int32_t boundary) const {
  const auto stages = static_cast<int>(wiring_.stages.size());
  const std::optional<FrameEnds> ends =
      EndsOf(kind, boundary, stages, wiring_.ties);
  PACELINE_CHECK(ends.has_value(), "boundary=", boundary);
  return *ends;
}

StageOutbound* RunState::FindOutbound(const FrameKey& key) const {
  const FrameEnds ends = Ends(key.kind, key.boundary);
  const StageWiring& to = wiring_.stages[ends.to];
  const WorkerAddress& neighbour =
      to.replicas[ReplicasOfKey(key, wiring_.stages[ends.from], to).second];
  const auto stream = outbound_.find({neighbour.worker, key.kind});
  return stream == outbound_.end() ? nullptr : stream->second.get();
}

absl::Status RunState::CheckRoute(const FrameHeader& header) const {
  const FrameKey key = KeyOf(header);
  const FrameEnds ends = Ends(key.kind, key.boundary);
  const auto [from, to] =
      ReplicasOfKey(key, wiring_.stages[ends.from], wiring_.stages[ends.to]);
  if (from == header.route && to == OwnReplica(ends.to)) {
    return absl::OkStatus();
  }
  return InvalidArgument("the ", ToText(key), " goes from replica ", from,
                         " of stage ", ends.from, " to replica ", to,
                         " of stage ", ends.to, ", but came from ",
                         header.route, " to ", OwnReplica(ends.to));
}

bool RunState::Sends(FrameKind kind, int32_t boundary) const {
  const auto stages = static_cast<int>(wiring_.stages.size());
  const std::optional<FrameEnds> ends =
      EndsOf(kind, boundary, stages, wiring_.ties);
  return ends.has_value() && IsMine(ends->from);
}

absl::Status RunState::Send(Frame frame) {
  const FrameHeader& header = frame.header;
  if (!Sends(header.kind, header.boundary)) {
    return NoBoundary("goes out", header.kind, header.boundary);
  }
  StageOutbound* stream = FindOutbound(KeyOf(header));
  frame.header.route = OwnReplica(Ends(header.kind, header.boundary).from);
  if (stream != nullptr) return stream->Send(std::move(frame));

  frame.header.fence = wiring_.fence;
  frame.header.tensors.clear();
  for (const Tensor& tensor : frame.tensors) {
    frame.header.tensors.push_back({tensor.dtype, tensor.shape});
  }
  return mailbox_.Put(std::move(frame));
}

absl::StatusOr<Frame> RunState::Receive(const FrameKey& key) {
  PACELINE_ASSIGN_OR_RETURN(Frame frame, mailbox_.Take(key));
  const FrameHeader& header = frame.header;
  std::shared_ptr<InboundStream> stream;
  std::optional<Credit> credit;
  {
    absl::MutexLock lock(&mutex_);
    const auto inbound = inbound_.find({header.boundary, header.route});
    if (inbound == inbound_.end() || inbound->second.kind != header.kind) {
      return frame;
    }
    inbound->second.ledger.OnConsumed();
    // Without a stream, the next hello gets the credit.
    stream = inbound->second.stream;
    if (stream != nullptr) credit = inbound->second.ledger.TakeDue();
  }
  if (credit) stream->SendCredit(header.kind, header.boundary, *credit);
  return frame;
}

absl::StatusOr<absl::Duration> RunState::AwaitRoom(int32_t boundary,
                                                   int64_t ordinal, int frames,
                                                   int micro_batch) {
  if (!Sends(FrameKind::kActivation, boundary)) {
    return NoBoundary("goes out", FrameKind::kActivation, boundary);
  }
  StageOutbound* stream =
      FindOutbound({FrameKind::kActivation, boundary, ordinal, micro_batch});
  if (stream == nullptr) return absl::ZeroDuration();
  return stream->AwaitRoom(boundary, frames);
}

std::vector<std::weak_ptr<StageOutbound>> RunState::Close() {
  End(Cancelled("the run was closed"), /*linger=*/true);
  std::vector<std::weak_ptr<StageOutbound>> lingering;
  for (const auto& [key, stream] : outbound_) lingering.push_back(stream);
  gate_.Close();
  return lingering;
}

void RunState::End(const absl::Status& why, bool linger) {
  // StageOutbound::Close() ends a cancelled stream without lingering.
  mailbox_.Cancel(why);
  for (const auto& [key, stream] : outbound_) stream->Close(why, linger);
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  for (auto& [entrance, inbound] : inbound_) inbound.stream = nullptr;
}

// Under the lock, so that on_links is not called after the run has ended.
void RunState::OnLink() {
  absl::MutexLock lock(&mutex_);
  if (!ended_ && wiring_.on_links != nullptr) wiring_.on_links();
}

std::vector<BrokenLink> RunState::BrokenLinks() const {
  std::map<WorkerId, BrokenLink> links;
  for (const auto& [key, stream] : outbound_) {
    const std::optional<BrokenLink> broken = stream->broken();
    if (!broken.has_value()) continue;
    BrokenLink& link = links[broken->neighbour];
    link.neighbour = broken->neighbour;
    link.since = std::max(link.since, broken->since);
    link.refused = link.refused || broken->refused;
  }
  std::vector<BrokenLink> by_id;
  for (const auto& [neighbour, link] : links) by_id.push_back(link);
  return by_id;
}

std::map<WorkerId, int64_t> RunState::SentBytes() const {
  std::map<WorkerId, int64_t> sum;
  for (const auto& [key, stream] : outbound_) {
    const auto [neighbour, bytes] = stream->sent();
    sum[neighbour] += bytes;
  }
  return sum;
}

absl::StatusOr<InboundStream::Reading> RunState::OnFrame(
    const std::shared_ptr<InboundStream>& stream,
    absl::Span<const ByteSpan> message, FrameLayout layout) {
  FrameHeader& header = layout.header;
  if (header.kind == FrameKind::kHello) {
    PACELINE_RETURN_IF_ERROR(ReadPayload(message, layout).status());
    PACELINE_RETURN_IF_ERROR(OnHello(stream, {header.boundary, header.route}));
    return InboundStream::Reading::kGoOn;
  }
  PACELINE_ASSIGN_OR_RETURN(const SequenceVerdict verdict,
                            CheckIncoming(stream, header));
  if (verdict == SequenceVerdict::kDuplicate) {
    ++shared_->counters.frames_dropped_duplicate;
    return InboundStream::Reading::kGoOn;
  }
  PACELINE_ASSIGN_OR_RETURN(
      TensorList tensors,
      ReadPayload(message, layout, [this](DType dtype, Shape shape) {
        return pool_.Allocate(dtype, std::move(shape));
      }));
  OnIntact(stream, {std::move(header), std::move(tensors)},
           layout.payload.bytes);
  return InboundStream::Reading::kGoOn;
}

absl::Status RunState::OnHello(const std::shared_ptr<InboundStream>& stream,
                               const Entrance& entrance) {
  std::shared_ptr<InboundStream> superseded;
  FrameKind kind;
  Credit credit;
  {
    absl::MutexLock lock(&mutex_);
    const auto inbound = inbound_.find(entrance);
    if (inbound == inbound_.end()) {
      return InvalidArgument(
          "nothing comes in from another worker at boundary ", entrance.first,
          entrance.second == 0
              ? ""
              : absl::StrCat(", from replica ", entrance.second),
          " of worker ", wiring_.self.value, ", ", ToText(wiring_.fence));
    }
    superseded = std::exchange(inbound->second.stream, stream);
    kind = inbound->second.kind;
    credit = inbound->second.ledger.TakeNow();
  }
  if (superseded != nullptr && superseded != stream) {
    superseded->End(Aborted("another stream has taken over"));
  }
  stream->SendCredit(kind, entrance.first, credit);
  return absl::OkStatus();
}

absl::StatusOr<SequenceVerdict> RunState::CheckIncoming(
    const std::shared_ptr<InboundStream>& stream, const FrameHeader& header) {
  absl::MutexLock lock(&mutex_);
  const auto found = inbound_.find({header.boundary, header.route});
  if (found == inbound_.end() || found->second.kind != header.kind) {
    return InvalidArgument("no ", FrameKindName(header.kind),
                           " comes in at boundary ", header.boundary,
                           " of worker ", wiring_.self.value);
  }
  const Inbound& inbound = found->second;
  if (inbound.stream != stream) {
    return InvalidArgument("a frame for boundary ", header.boundary,
                           " without a hello");
  }
  PACELINE_RETURN_IF_ERROR(CheckFrame(header, inbound.expected));
  PACELINE_RETURN_IF_ERROR(CheckRoute(header));
  const SequenceVerdict verdict = inbound.ledger.Check(header.sequence);
  if (verdict == SequenceVerdict::kGap) {
    return DataLoss(FrameKindName(header.kind), " frame ", header.sequence,
                    " at boundary ", header.boundary,
                    " came before an earlier one");
  }
  if (verdict == SequenceVerdict::kAboveCredit) {
    return InvalidArgument(FrameKindName(header.kind), " frame ",
                           header.sequence, " at boundary ", header.boundary,
                           " is above its credit");
  }
  return verdict;
}

void RunState::OnIntact(const std::shared_ptr<InboundStream>& stream,
                        Frame frame, int64_t bytes) {
  const FrameKind kind = frame.header.kind;
  const int32_t boundary = frame.header.boundary;
  std::optional<Credit> credit;
  {
    absl::MutexLock lock(&mutex_);
    Inbound& inbound = inbound_.at({boundary, frame.header.route});
    // A stream that replaced this one will bring the frame again, or has done
    // so.
    if (inbound.stream != stream) return;
    ++shared_->counters.frames_received;
    shared_->counters.bytes_received += bytes;
    inbound.ledger.OnReceived(bytes);
    credit = inbound.ledger.TakeDue();
    inbound.staged.push_back(std::move(frame));
    inbound.staged_bytes += bytes;
    if (inbound.staged_bytes >= kStagedBytes) FlushLocked(&inbound);
  }
  if (credit) stream->SendCredit(kind, boundary, *credit);
}

void RunState::OnBurstEnd() {
  absl::MutexLock lock(&mutex_);
  for (auto& [entrance, inbound] : inbound_) {
    if (!inbound.staged.empty()) FlushLocked(&inbound);
  }
}

bool RunState::IsSending() const {
  return std::ranges::any_of(
      outbound_, [](const auto& entry) { return entry.second->IsSending(); });
}

// Under the lock, so that frames reach the mailbox in the order of the ledger,
// and Receive() cannot return a frame before the ledger has counted it.
void RunState::FlushLocked(Inbound* inbound) {
  inbound->staged_bytes = 0;
  const absl::Status put = mailbox_.PutAll(std::exchange(inbound->staged, {}));
  // Any other error means that the run has ended and needs no frames.
  if (absl::IsAlreadyExists(put) && inbound->stream != nullptr) {
    ++shared_->counters.frames_refused;
    inbound->stream->End(InvalidArgument(put.message()));
  }
}

void RunState::OnStreamDone(const std::shared_ptr<InboundStream>& stream) {
  absl::MutexLock lock(&mutex_);
  for (auto& [entrance, inbound] : inbound_) {
    if (inbound.stream == stream) inbound.stream = nullptr;
  }
}

}  // namespace paceline
