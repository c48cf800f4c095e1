#include "worker/rounds/round_exchange.h"

#include <utility>

#include "core/transfer/tensor_codec.h"

namespace paceline {
namespace {

// A sender may have these results here: those that other members may lack, that
// of the open step, and the next one.  A member that lacks more gets a state.
// For a step and shard there may be one for each view in which it served.
constexpr StoreLimits kRoundStore{.steps = 4, .variants = 4};

Codec CodecOf(const AggregationSpec& aggregation) {
  return aggregation.codec == "bf16" ? Codec::kBf16 : Codec::kRaw;
}

RoundSumOptions SumOptionsOf(const RoundExchangeOptions& options) {
  const AggregationSpec& spec = options.aggregation;
  return {{spec.rule, spec.k, spec.selected, spec.alpha, spec.gamma, spec.rho},
          options.learning_rate,
          spec.conflict};
}

}  // namespace

// --- Life -------------------------------------------------------------------

RoundExchange::RoundExchange(RoundExchangeOptions options, const Clock& clock,
                             RoundObserver& observer)
    : DriverExchange(options,
                     RoundShape(options.values, options.aggregation.shards,
                                CodecOf(options.aggregation)),
                     kRoundStore, clock, observer),
      loss_(turns_),
      sum_(SumOptionsOf(options_), shape_, pool_, loss_, *this) {}

RoundExchange::~RoundExchange() { Stop(); }

absl::Status RoundExchange::Start(RoundTransport& transport) {
  PACELINE_RETURN_IF_ERROR(sum_.CheckRule());
  StartThread(transport, [this] {
    return std::make_unique<RoundDriver>(options_, shape_, parts(), sum_);
  });
  return absl::OkStatus();
}

void RoundExchange::Cancel(absl::Status why) {
  turns_.End(std::move(why));
  loss_.Shut();
}

void RoundExchange::Stop(absl::Status why) {
  Cancel(std::move(why));
  EndThread();
  sum_.Stop();
  JoinThread();
}

MemberReport RoundExchange::Report() const {
  MemberReport report = DriverExchange::Report();
  report.turn = turns_.turn();
  arrivals_.AddTo(report.peers, clock_.Now(), options_.lease);
  return report;
}

// --- Compute thread ---------------------------------------------------------

absl::StatusOr<RoundTurn> RoundExchange::AwaitTurn(absl::Duration longest) {
  for (;;) {
    absl::StatusOr<RoundTurn> turn = turns_.Await(longest);
    const bool withdrawn =
        turn.ok() && turn->kind == RoundTurn::Kind::kLoss && !loss_.Take(*turn);
    if (!withdrawn) return turn;
  }
}

void RoundExchange::BeginPart(const PartOptions& options) {
  PACELINE_CHECK(part_ == nullptr, "a part at a time");
  part_ = std::make_unique<RoundPart>(options, shape_, pool_);
  const std::optional<View> view = turns_.state().view;
  if (!view.has_value() || MembersAt(*view, options.step).empty()) return;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    const std::shared_ptr<RoundPayload>& payload = part_->payloads()[shard];
    if (payload == nullptr) continue;
    sum_.AddPart(options.step, shard, options_.self, payload);
    const MemberId server =
        ServerOf(*view, options_.server_mode(), options.step, shard);
    if (server == options_.self) continue;
    transport_->SendAhead(
        server, {PayloadKey::Kind::kPart, options.step, shard, 0}, payload);
  }
}

void RoundExchange::FinishPart(int64_t samples) {
  part_->MarkReady(0);
  const PartOptions& part = part_->options();
  PostPart({part_->Offers(samples), part_->payloads(), !part_->honest(),
            part.duplicates},
           part.step);
}

void RoundExchange::SkipPart(int64_t step, uint64_t division) {
  OwnPart own;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    own.offers.push_back({step, shard, 0, 0, division});
  }
  own.payloads.resize(own.offers.size());
  PostPart(std::move(own), step);
}

void RoundExchange::PostPart(OwnPart own, int64_t step) {
  turns_.OnPart(step);
  Post([own = std::move(own)](RoundDriver& driver) { driver.OnPart(own); });
}

void RoundExchange::AwaitPartReleased() {
  if (part_ == nullptr) return;
  // Forgets again: bytes may reach the transport only after the end of the
  // round did.
  const int64_t next = part_->options().step + 1;
  sum_.Forget(next);
  transport_->Forget(next);
  part_->Release();
  if (!part_->released().HasBeenNotified()) {
    // In a view that is over, the aggregate thread may wait for zeno's loss,
    // which this thread would have to compute.
    loss_.Shut();
    part_->released().WaitForNotification();
    loss_.Reopen();
  }
  part_.reset();
}

void RoundExchange::OnApplied(int64_t next, uint64_t state_hash) {
  Post([next, state_hash](RoundDriver& driver) {
    driver.OnApplied(next, state_hash);
  });
}

// --- The transport's threads ------------------------------------------------

std::shared_ptr<RoundPayload> RoundExchange::PartMemory(const MemberId& from,
                                                        const PayloadKey& key) {
  if (auto known = sum_.FindPart(key.step, key.shard, from); known != nullptr) {
    return known;
  }
  sum_.AddPart(key.step, key.shard, from, shape_.Make(key.shard, pool_));
  return sum_.FindPart(key.step, key.shard, from);
}

absl::StatusOr<std::shared_ptr<RoundPayload>> RoundExchange::OnPayload(
    const MemberId& from, const PayloadKey& key, size_t bytes) {
  if (key.step < 0 || key.shard < 0 || key.shard >= shape_.shards()) {
    return InvalidArgument(
        "worker ", from.worker.value, " sends bytes of step ", key.step,
        ", shard ", key.shard, ": this run has ", shape_.shards(), " shards");
  }
  const size_t expected = shape_.bytes(key.shard);
  if (bytes != expected || bytes == 0) {
    return InvalidArgument(
        "worker ", from.worker.value, " sends ", bytes, " bytes for shard ",
        key.shard, " of step ", key.step, ", where ", expected,
        " belong: it computes another model, or in another codec");
  }
  const RoundTurns::State known = turns_.state();
  // Drops bytes of steps that are over or too far ahead.  Results of all later
  // steps are kept while the state is still on its way; parts are not.
  const bool waits_for_state =
      !known.has_state && key.kind != PayloadKey::Kind::kPart;
  if (key.step < known.next ||
      (!waits_for_state && key.step > known.next + kStepsAhead)) {
    return nullptr;
  }
  if (key.kind == PayloadKey::Kind::kPart) return PartMemory(from, key);
  if (store_.FindResult(key.step, key.shard, key.variant).payload != nullptr) {
    return nullptr;  // the same bytes are here
  }
  std::shared_ptr<RoundPayload> memory = store_.Incoming(from, key);
  if (memory == nullptr) return memory;
  memory->Subscribe([this, from, weak = std::weak_ptr(memory)](int) {
    arrivals_.OnBytes(from, clock_.Now());
    const auto payload = weak.lock();
    if (payload == nullptr || !payload->complete()) return;
    Post([](RoundDriver& driver) { driver.OnBytes(); });
  });
  return memory;
}

// --- The aggregate thread ---------------------------------------------------

void RoundExchange::OnPartChecked(const RoundMessage& offer, PartCheck check) {
  Post([offer, check](RoundDriver& driver) {
    driver.OnPartChecked(offer, check);
  });
}

// The round is closed: each summed chunk may leave.
void RoundExchange::OnDecided(const SumRequest& request,
                              std::shared_ptr<RoundPayload> sum) {
  const std::optional<View> view = turns_.state().view;
  if (!view.has_value() || view->id != request.view || sum->size() == 0) return;
  const PayloadKey key{PayloadKey::Kind::kResult, request.step, request.shard,
                       RoundDriver::VariantOf(request.view)};
  for (const ViewMember& member : view->members) {
    if (member.id != options_.self) transport_->SendAhead(member.id, key, sum);
  }
}

void RoundExchange::OnSummed(const SumRequest& request,
                             std::shared_ptr<RoundPayload> sum,
                             const SumVerdict& verdict) {
  Post([request, sum = std::move(sum), verdict](RoundDriver& driver) {
    driver.OnSummed(request, sum, verdict);
  });
}

}  // namespace paceline
