#include "worker/round_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/obs/log.h"
#include "core/transfer/tensor_codec.h"

namespace paceline {
namespace {

Codec CodecOf(const AggregationSpec& aggregation) {
  return aggregation.codec == "bf16" ? Codec::kBf16 : Codec::kRaw;
}

RoundSumOptions SumOptionsOf(const RoundDeskOptions& options) {
  const AggregationSpec& spec = options.aggregation;
  RoundSumOptions sum;
  sum.rule = {spec.rule,  spec.k,     spec.selected,
              spec.alpha, spec.gamma, spec.rho};
  sum.learning_rate = options.learning_rate;
  return sum;
}

}  // namespace

uint64_t HashState(absl::Span<const uint8_t> bytes) { return HashBytes(bytes); }

// --- Life -------------------------------------------------------------------

RoundDesk::RoundDesk(RoundDeskOptions options, const Clock& clock,
                     RoundObserver& observer)
    : options_(std::move(options)),
      shape_(options_.values, options_.aggregation.shards,
             CodecOf(options_.aggregation)),
      clock_(clock),
      observer_(observer),
      // Parts and results of a step, and room for a view that changes.
      pool_(3 * options_.values * shape_.value_bytes() + kRoundChunkBytes),
      store_(shape_, pool_),
      turns_(options_.total_steps),
      loss_(turns_),
      sum_(SumOptionsOf(options_), shape_, pool_, loss_, *this),
      loop_(clock, observer) {}

RoundDesk::~RoundDesk() { Stop(); }

absl::Status RoundDesk::Start(RoundTransport& transport) {
  if (const absl::Status rule = sum_.CheckRule(); !rule.ok()) return rule;
  transport_ = &transport;
  loop_.Start([this] {
    return std::make_unique<RoundDriver>(
        options_, shape_,
        RoundDriverParts{*transport_, store_, sum_, turns_, observer_, clock_});
  });
  return absl::OkStatus();
}

void RoundDesk::Cancel(absl::Status why) {
  turns_.End(std::move(why));
  loss_.End();
}

void RoundDesk::Stop(absl::Status why) {
  Cancel(std::move(why));
  loop_.End();
  sum_.Stop();
  loop_.Join();
}

void RoundDesk::OnGroup(const GroupOrder& group) {
  loop_.Post([group](RoundDriver& driver) { driver.OnGroup(group); });
}

MemberReport RoundDesk::Report() const {
  MemberReport report = loop_.Report();
  report.turn = turns_.turn();
  arrivals_.AddTo(report.peers, clock_.Now(), options_.lease);
  return report;
}

// --- Compute thread ---------------------------------------------------------

absl::StatusOr<RoundTurn> RoundDesk::AwaitTurn() {
  for (;;) {
    absl::StatusOr<RoundTurn> turn = turns_.Await();
    const bool withdrawn =
        turn.ok() && turn->kind == RoundTurn::Kind::kLoss && !loss_.Take(*turn);
    if (!withdrawn) return turn;
  }
}

bool RoundDesk::IsOver(int64_t step) const { return turns_.IsOver(step); }

void RoundDesk::BeginPart(const PartOptions& options) {
  PACELINE_CHECK(part_ == nullptr, "a part at a time");
  part_ = std::make_unique<RoundPart>(options, shape_, pool_);
  const std::optional<View> view = turns_.state().view;
  if (!view.has_value() || MembersAt(*view, options.step).empty()) return;
  const ServerMode mode = options_.aggregation.mode == "central"
                              ? ServerMode::kCentral
                              : ServerMode::kRolling;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    const std::shared_ptr<RoundPayload>& payload = part_->payloads()[shard];
    if (payload == nullptr) continue;
    sum_.AddPart(options.step, shard, options_.self, payload);
    const MemberId server = ServerOf(*view, mode, options.step, shard);
    if (server == options_.self) continue;
    transport_->SendAhead(
        server, {PayloadKey::Kind::kPart, options.step, shard, 0}, payload);
  }
}

void RoundDesk::MarkReady(size_t begin) { part_->MarkReady(begin); }

void RoundDesk::FinishPart(int64_t samples) {
  part_->MarkReady(0);
  OwnPart own{part_->Offers(samples), part_->payloads(), !part_->honest(),
              part_->options().duplicates};
  turns_.OnPart(part_->options().step);
  loop_.Post(
      [own = std::move(own)](RoundDriver& driver) { driver.OnPart(own); });
}

void RoundDesk::SkipPart(int64_t step, uint64_t division) {
  OwnPart own;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    own.offers.push_back({step, shard, 0, 0, division});
  }
  own.payloads.resize(own.offers.size());
  turns_.OnPart(step);
  loop_.Post(
      [own = std::move(own)](RoundDriver& driver) { driver.OnPart(own); });
}

void RoundDesk::AwaitPartReleased() {
  if (part_ == nullptr) return;
  // Once more: what was sent ahead may have come to the transport only after
  // the round's end had.
  const int64_t next = part_->options().step + 1;
  sum_.Forget(next);
  transport_->Forget(next);
  part_->Release();
  if (!part_->released().HasBeenNotified()) {
    // Who sums it for zeno may wait for a loss, which is this thread's to
    // compute: in a view that is over.
    loss_.SetShut(true);
    part_->released().WaitForNotification();
    loss_.SetShut(false);
  }
  part_.reset();
}

void RoundDesk::OnApplied(int64_t next, uint64_t state_hash) {
  loop_.Post([next, state_hash](RoundDriver& driver) {
    driver.OnApplied(next, state_hash);
  });
}

void RoundDesk::SendState(int64_t next, uint64_t state_hash,
                          std::shared_ptr<RoundPayload> state) {
  loop_.Post([next, state_hash, state = std::move(state)](RoundDriver& driver) {
    driver.OnStateCopied(next, state_hash, state);
  });
}

void RoundDesk::AnswerLoss(absl::StatusOr<double> loss) {
  loss_.Answer(std::move(loss));
}

// --- The transport's threads ------------------------------------------------

absl::StatusOr<std::shared_ptr<RoundPayload>> RoundDesk::PartMemory(
    const MemberId& from, const PayloadKey& key, size_t bytes) {
  if (auto known = sum_.FindPart(key.step, key.shard, from); known != nullptr) {
    return known;
  }
  sum_.AddPart(key.step, key.shard, from, pool_.Make(bytes));
  return sum_.FindPart(key.step, key.shard, from);
}

absl::StatusOr<std::shared_ptr<RoundPayload>> RoundDesk::OnPayload(
    const MemberId& from, const PayloadKey& key, size_t bytes) {
  const bool state = key.kind == PayloadKey::Kind::kState;
  if (key.step < 0 || key.shard < 0 ||
      key.shard >= (state ? 1 : shape_.shards())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", from.worker.value, " sends bytes of step ", key.step,
        ", shard ", key.shard, ": this run has ", shape_.shards(), " shards"));
  }
  const size_t expected =
      state ? options_.state_bytes : shape_.bytes(key.shard);
  if (bytes != expected || bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", from.worker.value, " sends ", bytes, " bytes for shard ",
        key.shard, " of step ", key.step, ", where ", expected,
        " belong: it computes another model, or in another codec"));
  }
  const RoundTurns::State known = turns_.state();
  // A late one, or of a step that is not this member's to know of yet.  Results
  // are gathered for a state that is still on its way; parts never are.
  const bool waits_for_state =
      !known.has_state && key.kind != PayloadKey::Kind::kPart;
  if (!state && (key.step < known.next ||
                 (!waits_for_state && key.step > known.next + kStepsAhead))) {
    return nullptr;
  }
  if (key.kind == PayloadKey::Kind::kPart) return PartMemory(from, key, bytes);
  if (state && known.has_state && key.step <= known.next) return nullptr;
  if (!state &&
      store_.FindResult(key.step, key.shard, key.variant).payload != nullptr) {
    return nullptr;  // the same bytes are here
  }
  std::shared_ptr<RoundPayload> memory = store_.Incoming(from, key, bytes);
  if (memory == nullptr) return memory;
  memory->Subscribe(
      [this, from, state, weak = std::weak_ptr<RoundPayload>(memory)](int) {
        arrivals_.OnBytes(from, clock_.Now());
        const auto payload = weak.lock();
        if (state || payload == nullptr || !payload->complete()) return;
        loop_.Post([](RoundDriver& driver) { driver.OnBytes(); });
      });
  return memory;
}

void RoundDesk::OnMessage(RoundMessage message,
                          std::shared_ptr<RoundPayload> payload) {
  loop_.PostOfPeer([message = std::move(message),
                    payload = std::move(payload)](RoundDriver& driver) {
    driver.OnMessage(message, payload);
  });
}

void RoundDesk::OnLink(const MemberId& peer, bool up, bool refused) {
  loop_.Post([=](RoundDriver& driver) { driver.OnLink(peer, up, refused); });
}

// --- The aggregate thread ---------------------------------------------------

void RoundDesk::OnPartChecked(const RoundMessage& offer, PartCheck check) {
  loop_.Post([offer, check](RoundDriver& driver) {
    driver.OnPartChecked(offer, check);
  });
}

// The round is closed: what is summed may leave, chunk by chunk.
void RoundDesk::OnDecided(const SumRequest& request,
                          std::shared_ptr<RoundPayload> sum) {
  const std::optional<View> view = turns_.state().view;
  if (!view.has_value() || view->id != request.view || sum->size() == 0) return;
  const PayloadKey key{PayloadKey::Kind::kResult, request.step, request.shard,
                       RoundDriver::VariantOf(request.view)};
  for (const ViewMember& member : view->members) {
    if (member.id != options_.self) transport_->SendAhead(member.id, key, sum);
  }
}

void RoundDesk::OnSummed(const SumRequest& request,
                         std::shared_ptr<RoundPayload> sum,
                         const SumVerdict& verdict) {
  loop_.Post([request, sum = std::move(sum), verdict](RoundDriver& driver) {
    driver.OnSummed(request, sum, verdict);
  });
}

}  // namespace paceline
