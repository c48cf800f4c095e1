#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/optim/step_gate.h"
#include "core/round/rules/rule_blocks.h"
#include "core/schedule/schedule.h"
#include "worker/rounds/faults.h"
#include "worker/rounds/gossip_exchange.h"
#include "worker/rounds/member_runner.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {
namespace {

// How often a thread that waits for a partner reports that it lives: far below
// any lease.
constexpr absl::Duration kSignOfLife = absl::Milliseconds(500);

// A member that gossips: its own update of a step, then the mean of its
// parameters and its partner's.  Lives on the compute thread.
class GossipRunner final : public MemberRunner {
 public:
  // exchange outlives this.
  GossipRunner(MemberOptions options, const MemberParts& parts,
               GossipExchange& exchange)
      : MemberRunner(std::move(options), parts, exchange),
        exchange_(exchange) {}

 private:
  // MemberRunner.
  absl::Duration longest_wait() const override {
    return meeting_ ? kSignOfLife : absl::InfiniteDuration();
  }

  absl::Status Take(RoundTurn& turn) override {
    switch (turn.kind) {
      case RoundTurn::Kind::kPart:
        return Train(turn);
      case RoundTurn::Kind::kMeet:
        return Meet(turn);
      case RoundTurn::Kind::kWait:
        parts_.observer.OnProgress({0, Op::kStep, 0}, batch_);
        return absl::OkStatus();
      default:
        return Internal("no such turn in gossip");
    }
  }

  // Until it has met, its state is not the one that it deposits after the step:
  // one cut would have two states.
  void OfferState(RoundTurn turn) override {
    if (meeting_) {
      offer_ = std::move(turn);
    } else {
      MemberRunner::OfferState(std::move(turn));
    }
  }

  // --- Its own update --------------------------------------------------------

  absl::Status Train(const RoundTurn& turn) {
    const StepFaults faults = options_.faults.At(turn.step);
    PACELINE_RETURN_IF_ERROR(BeginStep(faults, turn.step));
    batch_ = parts_.source.Training(turn.step);
    const std::vector<int> own = OwnMicroBatches(turn, batch_);
    applied_ = turn.step;  // a joiner begins where the group is
    StepVerdict verdict;
    verdict.step = turn.step;
    if (!own.empty()) {
      PACELINE_RETURN_IF_ERROR(ComputeShare(own, faults));
      const ScopedPart part(parts_.time, TimePart::kOptimizer);
      PACELINE_ASSIGN_OR_RETURN(verdict, Update(faults));
    }
    applied_ = turn.step + 1;
    // Estimated from this member's own micro-batches: others' are not known
    // here.
    const int64_t samples = losses_.samples;
    const int64_t all =
        own.empty() ? 0 : samples * batch_.micro_batches / std::ssize(own);
    // A run that ends before the mean deposits the state with this step.  The
    // record is told first, so that no deposit lacks its record.
    PACELINE_RETURN_IF_ERROR(Tell(verdict, batch_, samples, all));
    parts_.on_state(applied_, std::nullopt);
    const ScopedPart part(parts_.time, TimePart::kAggregate);
    return Offer(faults);
  }

  absl::Status ComputeShare(const std::vector<int>& own,
                            const StepFaults& faults) {
    parts_.source.Prepare(batch_, own);
    for (const int micro_batch : own) {
      PACELINE_RETURN_IF_ERROR(parts_.cancel.status());
      OfferIfAsked();
      PACELINE_RETURN_IF_ERROR(
          ComputeMicroBatch(batch_, micro_batch, faults, nullptr));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StepVerdict> Update(const StepFaults& faults) {
    const int64_t samples = losses_.samples;
    PACELINE_ASSIGN_OR_RETURN(const absl::Span<float> gradient,
                              parts_.engine.FlatGradient());
    // This member would skip a step with NaN in the gradient, and no partner
    // would see it: the offer has the NaN instead.
    StepFaults spoils = faults;
    spoils.nan = false;
    SpoilGradient(spoils, samples,
                  MixSeed({static_cast<uint64_t>(options_.self.worker.value),
                           static_cast<uint64_t>(batch_.step)}),
                  gradient);
    PACELINE_ASSIGN_OR_RETURN(StepReport report, parts_.engine.Report(batch_));
    report.step = batch_.step;
    report.samples = samples;
    const StepVerdict verdict =
        DecideStep(options_.spec.train, total_steps_, {report});
    PACELINE_RETURN_IF_ERROR(parts_.engine.Apply(verdict));
    if (!verdict.skip) {
      const absl::Status finite = CheckFinite(parts_.engine, batch_.step + 1);
      // Other members have states of their own: only this member leaves.
      if (!finite.ok()) return DataLoss(finite.message());
    }
    return verdict;
  }

  // Offers a copy: after an exchange that was given up, the parameters change
  // while the bytes are still being sent.
  absl::Status Offer(const StepFaults& faults) {
    PACELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> parameters,
                              Trainable());
    OwnParameters own;
    own.step = batch_.step;
    own.payload = exchange_.MakeBlock();
    uint8_t* next = own.payload->mutable_bytes().data();
    const uint8_t* const end = next + own.payload->size();
    for (const NamedTensor& each : parameters) {
      const int64_t bytes = each.tensor.bytes();
      if (bytes > end - next) {
        return Internal("the engine has more parameters than before");
      }
      std::copy_n(each.tensor.data.get(), bytes, next);
      next += bytes;
    }
    if (next != end) {
      return Internal("the engine has fewer parameters than before");
    }
    const absl::Span<uint8_t> bytes = own.payload->mutable_bytes();
    StepFaults spoils;
    spoils.nan = faults.nan;
    SpoilGradient(spoils, 1, 0,
                  absl::MakeSpan(reinterpret_cast<float*>(bytes.data()),
                                 bytes.size() / sizeof(float)));
    MarkAllReady(*own.payload);
    if (!bytes.empty()) own.hash = own.payload->hash();
    // Stands for the hash of the bytes before they were spoilt.
    if (own.hash > 1 && faults.bit_flip) own.hash ^= 1;
    own.duplicates = faults.duplicate;
    exchange_.Meet(std::move(own));
    meeting_ = true;
    return absl::OkStatus();
  }

  // --- Its partner -----------------------------------------------------------

  absl::Status Meet(const RoundTurn& turn) {
    meeting_ = false;
    if (turn.theirs != nullptr) {
      const ScopedPart part(parts_.time, TimePart::kAggregate);
      PACELINE_RETURN_IF_ERROR(Average(turn.theirs));
    }
    parts_.on_state(turn.step + 1, 0);
    if (offer_.has_value()) OfferState(*std::exchange(offer_, {}));
    return Evaluate(turn.step + 1);
  }

  // Averages in the partner's memory, which this member owns now; the engine
  // takes the weights over from there.
  absl::Status Average(const std::shared_ptr<RoundPayload>& theirs) {
    PACELINE_ASSIGN_OR_RETURN(std::vector<NamedTensor> parameters, Trainable());
    uint8_t* next = theirs->mutable_bytes().data();
    for (NamedTensor& each : parameters) {
      const absl::Span<const float> own =
          std::as_const(each.tensor).As<float>();
      AverageWith(absl::MakeSpan(reinterpret_cast<float*>(next), own.size()),
                  own);
      // Keeps the partner's whole payload alive.
      each.tensor.data = std::shared_ptr<uint8_t>(theirs, next);
      next += own.size() * sizeof(float);
    }
    return parts_.engine.SetWeights(parameters);
  }

  GossipExchange& exchange_;
  bool meeting_ = false;
  std::optional<RoundTurn> offer_;  // until it has met
  // The batch of the step that is open.
  BatchInfo batch_;
};

}  // namespace

absl::Status RunGossip(MemberOptions options, const MemberParts& parts,
                       GossipExchange& exchange) {
  return GossipRunner(std::move(options), parts, exchange).Run();
}

}  // namespace paceline
