#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/obs/log.h"
#include "core/optim/step_gate.h"
#include "core/round/rules/rule.h"
#include "worker/rounds/faults.h"
#include "worker/rounds/member_runner.h"
#include "worker/rounds/round_exchange.h"

namespace paceline {
namespace {

// A member of a round group: a step's part, the group's result, the next step.
// Lives on the compute thread.
class RoundRunner final : public MemberRunner {
 public:
  // `exchange` outlives this.
  RoundRunner(MemberOptions options, const MemberParts& parts,
              RoundExchange& exchange)
      : MemberRunner(std::move(options), parts, exchange),
        exchange_(exchange) {}

 private:
  // A micro-batch of the test set that a rule may trust.
  struct Trusted {
    BatchInfo batch;
    int micro_batch = 0;
    TensorList input;
  };

  // MemberRunner.
  absl::Status Begin() override {
    return TraitsOf(options_.spec.aggregation.rule).trusts_a_batch
               ? LoadTrusted()
               : absl::OkStatus();
  }

  absl::Status Take(RoundTurn& turn) override {
    switch (turn.kind) {
      case RoundTurn::Kind::kPart:
        return ComputePart(turn);
      case RoundTurn::Kind::kApply:
        return Apply(turn);
      case RoundTurn::Kind::kLoss:
        exchange_.AnswerLoss(TrustedLoss(turn));
        return absl::OkStatus();
      default:
        return Internal("no such turn in rounds");
    }
  }

  // --- A part ----------------------------------------------------------------

  absl::Status ComputePart(const RoundTurn& turn) {
    const StepFaults faults = options_.faults.At(turn.step);
    PACELINE_RETURN_IF_ERROR(BeginStep(faults, turn.step));
    const BatchInfo batch = parts_.source.Training(turn.step);
    const std::vector<int> own = OwnMicroBatches(turn, batch);
    if (own.empty()) {
      exchange_.SkipPart(turn.step, DivisionOf(turn.view, turn.step));
      return absl::OkStatus();
    }
    parts_.source.Prepare(batch, own);
    open_ = true;
    PACELINE_ASSIGN_OR_RETURN(const bool whole,
                              ComputeMicroBatches(turn, batch, own, faults));
    if (whole) {
      exchange_.FinishPart(losses_.samples);
      next_part_ = turn;
      ++next_part_->step;
    } else {
      Abandon();
    }
    return absl::OkStatus();
  }

  // Loads the next step's data while the round closes.  ComputePart() asks
  // again if an evaluation or another view comes between.
  void PrepareNext() {
    if (!next_part_.has_value()) return;
    const RoundTurn next = *std::exchange(next_part_, std::nullopt);
    if (next.step >= total_steps_ ||
        parts_.source.Evaluation(next.step).micro_batches > 0) {
      return;
    }
    const BatchInfo batch = parts_.source.Training(next.step);
    const std::vector<int> own = OwnMicroBatches(next, batch);
    if (!own.empty()) parts_.source.Prepare(batch, own);
  }

  // False: the part is of no use any more.
  absl::StatusOr<bool> ComputeMicroBatches(const RoundTurn& turn,
                                           const BatchInfo& batch,
                                           const std::vector<int>& own,
                                           const StepFaults& faults) {
    for (const int micro_batch : own) {
      if (exchange_.IsOver(turn.step)) return false;
      OfferIfAsked();
      absl::Status began;
      const bool last = micro_batch == own.back();
      // A gradient that is to be spoilt leaves when it is whole.
      const bool streams = last && !faults.spoils_gradient();
      PACELINE_RETURN_IF_ERROR(
          ComputeMicroBatch(batch, micro_batch, faults, [&] {
            if (streams) began = BeginPart(turn, faults);
          }));
      PACELINE_RETURN_IF_ERROR(began);
      if (!last || streams) continue;
      PACELINE_ASSIGN_OR_RETURN(const absl::Span<float> gradient,
                                parts_.engine.FlatGradient());
      SpoilGradient(faults, losses_.samples,
                    MixSeed({static_cast<uint64_t>(options_.self.worker.value),
                             static_cast<uint64_t>(turn.step)}),
                    gradient);
      PACELINE_RETURN_IF_ERROR(BeginPart(turn, faults));
    }
    parts_.engine.StreamSum(nullptr);
    return true;
  }

  // The last backward goes from the last layer to the first: finished values
  // leave while it runs.
  absl::Status BeginPart(const RoundTurn& turn, const StepFaults& faults) {
    PACELINE_ASSIGN_OR_RETURN(const absl::Span<float> gradient,
                              parts_.engine.FlatGradient());
    PartOptions part;
    part.step = turn.step;
    part.division = DivisionOf(turn.view, turn.step);
    part.gradient = gradient;
    part.lies = faults.nan;
    part.corrupts = faults.bit_flip;
    part.duplicates = faults.duplicate;
    exchange_.BeginPart(part);
    parts_.engine.StreamSum(
        [this](size_t begin) { exchange_.MarkReady(begin); });
    return absl::OkStatus();
  }

  void Abandon() override {
    parts_.engine.StreamSum(nullptr);
    exchange_.AwaitPartReleased();
    if (std::exchange(open_, false)) parts_.engine.AbandonStep();
  }

  // --- A result --------------------------------------------------------------

  // The engine reads the group's sum in place, if ResultInPlace() allows it.
  absl::Status HandOver(const RoundTurn& turn) {
    auto chunks = ResultInPlace(turn, exchange_.shape());
    if (chunks.has_value())
      return parts_.engine.ReadSumFrom(*std::move(chunks));
    PACELINE_ASSIGN_OR_RETURN(const absl::Span<float> gradient,
                              parts_.engine.FlatGradient());
    WriteResult(turn, exchange_.shape(), gradient);
    return absl::OkStatus();
  }

  absl::StatusOr<StepVerdict> Update(const RoundTurn& turn,
                                     const BatchInfo& batch) {
    StepVerdict verdict;
    verdict.step = turn.step;
    verdict.skip = true;
    verdict.why =
        "the round was void: too few usable parts, or none that the rule "
        "could use";
    Abandon();
    if (turn.divisor == 0) return verdict;
    PACELINE_RETURN_IF_ERROR(HandOver(turn));
    PACELINE_ASSIGN_OR_RETURN(StepReport report, parts_.engine.Report(batch));
    report.step = turn.step;
    report.samples = turn.divisor;
    verdict = DecideStep(options_.spec.train, total_steps_, {report});
    PACELINE_RETURN_IF_ERROR(parts_.engine.Apply(verdict));
    if (!verdict.skip) {
      PACELINE_RETURN_IF_ERROR(CheckFinite(parts_.engine, turn.step + 1));
    }
    return verdict;
  }

  // Hashing the state takes half as long as an update.  Only the next hold
  // carries the hash: this member computes it after its own part, while it
  // waits for the round.
  void TellState() {
    if (!untold_.has_value()) return;
    const ScopedPart part(parts_.time, TimePart::kOptimizer);
    state_hash_ = parts_.engine.StateHash();
    exchange_.OnApplied(applied_, state_hash_);
    LogApplied();
    untold_.reset();
  }

  // All members' lines together show whether a member ever diverged.
  void LogApplied() const {
    if (!LogEnabled(LogLevel::kDebug)) return;
    bool used = false;
    for (const ShardResult& shard : untold_->result.shards) {
      for (const Contributor& each : shard.contributors) {
        used = used || each.member == options_.self;
      }
    }
    Log(LogLevel::kDebug, "applied a round",
        {{"step", applied_},
         {"state", absl::Hex(state_hash_, absl::kZeroPad16)},
         {"part", untold_->divisor == 0 ? "void"
                  : used                ? "used"
                                        : "unused"}});
  }

  absl::Status Apply(const RoundTurn& turn) {
    TellState();
    const BatchInfo batch = parts_.source.Training(turn.step);
    StepVerdict verdict;
    {
      const ScopedPart part(parts_.time, TimePart::kOptimizer);
      PACELINE_ASSIGN_OR_RETURN(verdict, Update(turn, batch));
    }
    applied_ = turn.step + 1;
    state_hash_ = 0;
    untold_ = turn;
    untold_->sums.clear();
    const bool awaited =
        parts_.on_state(applied_, turn.result.compared_through);
    if (awaited || applied_ == total_steps_) TellState();
    int64_t samples = 0;
    if (turn.divisor > 0) {
      for (const Contributor& each : turn.result.shards.front().contributors) {
        samples += each.samples;
      }
    }
    PACELINE_RETURN_IF_ERROR(Tell(verdict, batch, samples, samples));
    return Evaluate(applied_);
  }

  void OnRestored(uint64_t state_hash) override {
    untold_.reset();
    state_hash_ = state_hash;
    exchange_.OnApplied(applied_, state_hash_);
  }

  // --- zeno ------------------------------------------------------------------

  // Micro-batches of the test set, drawn from the job's seed.
  absl::Status LoadTrusted() {
    const BatchInfo batch = parts_.source.Evaluation(total_steps_);
    if (batch.micro_batches == 0) {
      return FailedPrecondition(
          "rule zeno asks for the loss on a trusted batch, which is drawn from "
          "the test set, and this data set has none: use another rule");
    }
    std::vector<int> chosen(batch.micro_batches);
    for (int i = 0; i < batch.micro_batches; ++i) chosen[i] = i;
    SplitMix64 random(MixSeed(
        {static_cast<uint64_t>(options_.spec.train.seed), 0x7a656e6fu}));
    for (size_t i = chosen.size() - 1; i > 0; --i) {
      std::swap(chosen[i], chosen[random.Below(i + 1)]);
    }
    const int64_t size = options_.spec.train.micro_batch;
    const int64_t wanted = options_.spec.aggregation.trusted;
    chosen.resize(std::clamp<int64_t>((wanted + size - 1) / size, 1,
                                      batch.micro_batches));
    std::sort(chosen.begin(), chosen.end());
    parts_.source.Prepare(batch, chosen);
    for (const int micro_batch : chosen) {
      PACELINE_ASSIGN_OR_RETURN(TensorList input,
                                parts_.source.NextMicroBatch());
      trusted_.push_back({batch, micro_batch, std::move(input)});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> MeanTrustedLoss() {
    LossSums sums;
    for (const Trusted& trusted : trusted_) {
      PACELINE_ASSIGN_OR_RETURN(
          const ForwardResult result,
          parts_.engine.Forward(trusted.batch, trusted.micro_batch,
                                trusted.input));
      // Other members wait for these losses: reports that this thread works.
      parts_.observer.OnProgress({0, Op::kForward, trusted.micro_batch},
                                 trusted.batch);
      if (!result.loss.has_value()) continue;
      sums.loss += result.loss->loss;
      sums.samples += result.loss->samples;
    }
    if (sums.samples == 0) {
      return FailedPrecondition("the trusted batch has no labels");
    }
    return sums.loss / static_cast<double>(sums.samples);
  }

  // Steps along the direction, and then restores the very bytes from before.
  absl::StatusOr<double> TrustedLoss(const RoundTurn& turn) {
    const ScopedPart part(parts_.time, TimePart::kAggregate);
    if (turn.direction.empty()) return MeanTrustedLoss();
    PACELINE_ASSIGN_OR_RETURN(std::vector<NamedTensor> parameters, Trainable());
    std::vector<std::vector<float>> before;
    const float* direction = turn.direction.data();
    const auto step = static_cast<float>(turn.loss_step);
    for (NamedTensor& each : parameters) {
      const absl::Span<float> parameter = each.tensor.As<float>();
      before.emplace_back(parameter.begin(), parameter.end());
      for (float& value : parameter) value -= step * *direction++;
    }
    parts_.engine.OnWeightsWritten();
    absl::StatusOr<double> loss = MeanTrustedLoss();
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::copy(before[i].begin(), before[i].end(),
                parameters[i].tensor.As<float>().begin());
    }
    parts_.engine.OnWeightsWritten();
    return loss;
  }

  void OnIdle() override {
    TellState();
    PrepareNext();
  }

  RoundExchange& exchange_;
  bool open_ = false;  // the engine holds an open step
  // The part after the one that was handed in last, until its data begin to
  // load.
  std::optional<RoundTurn> next_part_;
  // The round that was applied last, until its state's hash has been told.
  std::optional<RoundTurn> untold_;
  std::vector<Trusted> trusted_;
};

}  // namespace

absl::Status RunRounds(MemberOptions options, const MemberParts& parts,
                       RoundExchange& exchange) {
  return RoundRunner(std::move(options), parts, exchange).Run();
}

}  // namespace paceline
