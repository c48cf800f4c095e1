#include "worker/rounds/parts/round_sum.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/round/rules/rule_blocks.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

// Values decoded at a time: some members' parts and the sum fit the cache.
constexpr size_t kDecodedValues = 8192;

absl::Span<const float> AsFloats(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()),
          bytes.size() / sizeof(float)};
}

}  // namespace

RoundSum::RoundSum(const RoundSumOptions& options, const RoundShape& shape,
                   BlockPool& pool, TrustedLoss& loss, SumSink& sink)
    : options_(options),
      shape_(shape),
      pool_(pool),
      loss_(loss),
      sink_(sink),
      aggregate_("aggregate") {}

RoundSum::~RoundSum() { Stop(); }

void RoundSum::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  aggregate_.Stop();
  const absl::MutexLock lock(&mutex_);
  shards_.clear();
}

absl::Status RoundSum::CheckRule() const { return RuleOf(0).status(); }

absl::StatusOr<std::unique_ptr<Rule>> RoundSum::RuleOf(int64_t step) const {
  RuleSpec spec = options_.rule;
  if (spec.gamma == 0 && options_.learning_rate != nullptr) {
    spec.gamma = options_.learning_rate(step);
  }
  return MakeRule(spec, &loss_);
}

// --- What comes, on any thread ----------------------------------------------

void RoundSum::AddPart(int64_t step, int shard, const MemberId& member,
                       std::shared_ptr<RoundPayload> payload) {
  auto part = std::make_shared<Part>();
  part->looked_at.resize(payload->chunks());
  part->payload = std::move(payload);
  std::shared_ptr<Ahead> ahead;
  {
    const absl::MutexLock lock(&mutex_);
    if (stopped_ || step < first_step_) return;
    Shard& entry = shards_[{step, shard}];
    if (!entry.parts.emplace(member, part).second) return;
    ahead = entry.ahead;
  }
  if (ahead != nullptr) Join(ahead, member, std::move(part));
}

std::shared_ptr<RoundSum::Part> RoundSum::Find(int64_t step, int shard,
                                               const MemberId& member) const {
  const absl::MutexLock lock(&mutex_);
  const auto entry = shards_.find({step, shard});
  if (entry == shards_.end()) return nullptr;
  const auto part = entry->second.parts.find(member);
  return part == entry->second.parts.end() ? nullptr : part->second;
}

std::shared_ptr<RoundPayload> RoundSum::FindPart(int64_t step, int shard,
                                                 const MemberId& member) const {
  const std::shared_ptr<Part> part = Find(step, shard, member);
  return part == nullptr ? nullptr : part->payload;
}

void RoundSum::Expect(int64_t step, int shard, std::vector<MemberId> members) {
  if (!sums_ahead() || shape_.values(shard) == 0) return;
  auto ahead = std::make_shared<Ahead>();
  std::map<MemberId, std::shared_ptr<Part>> here;
  {
    const absl::MutexLock lock(&mutex_);
    if (stopped_ || step < first_step_) return;
    Shard& entry = shards_[{step, shard}];
    if (entry.ahead != nullptr && entry.ahead->members == members) return;
    ahead->members = std::move(members);
    ahead->sum = shape_.Make(shard, pool_);
    ahead->arrived.resize(ahead->sum->chunks());
    entry.ahead = ahead;
    here = entry.parts;
  }
  for (auto& [member, part] : here) Join(ahead, member, part);
}

void RoundSum::Join(const std::shared_ptr<Ahead>& ahead, const MemberId& member,
                    std::shared_ptr<Part> part) {
  const std::shared_ptr<RoundPayload> payload = part->payload;
  {
    const absl::MutexLock lock(&mutex_);
    const bool counted = std::ranges::count(ahead->members, member) > 0;
    // AddPart() and Expect() may both join the same part.
    if (!counted || !ahead->parts.emplace(member, std::move(part)).second) {
      return;
    }
  }
  payload->Subscribe([this, weak = std::weak_ptr<Ahead>(ahead)](int chunk) {
    OnChunk(weak, chunk);
  });
}

void RoundSum::OnChunk(const std::weak_ptr<Ahead>& weak, int chunk) {
  const std::shared_ptr<Ahead> ahead = weak.lock();
  if (ahead == nullptr) return;
  {
    const absl::MutexLock lock(&mutex_);
    if (++ahead->arrived[chunk] < static_cast<int>(ahead->members.size())) {
      return;
    }
  }
  aggregate_.Post([this, weak, chunk] {
    if (const auto still = weak.lock(); still != nullptr) {
      SumAhead(still, chunk);
    }
  });
}

void RoundSum::Forget(int64_t step) {
  // Freed without the lock: the last user of a block gives it back.
  std::vector<Shard> dropped;
  const absl::MutexLock lock(&mutex_);
  first_step_ = std::max(first_step_, step);
  while (!shards_.empty() && shards_.begin()->first.first < step) {
    dropped.push_back(std::move(shards_.extract(shards_.begin()).mapped()));
  }
}

void RoundSum::Retain(const std::set<MemberId>& members) {
  const absl::MutexLock lock(&mutex_);
  for (auto& [key, shard] : shards_) {
    std::erase_if(shard.parts, [&members](const auto& part) {
      return members.count(part.first) == 0;
    });
  }
}

// --- The aggregate thread ---------------------------------------------------

void RoundSum::LookAt(Part& part, int chunk) {
  if (part.looked_at[chunk]) return;
  part.looked_at[chunk] = true;
  if (!IsFinite(part.payload->chunk(chunk))) part.finite = false;
}

bool RoundSum::IsFinite(absl::Span<const uint8_t> bytes) {
  absl::Span<const float> values = AsFloats(bytes);
  if (shape_.codec() != Codec::kRaw) {
    const size_t count = bytes.size() / shape_.value_bytes();
    scratch_.resize(std::max(scratch_.size(), count));
    values = absl::MakeSpan(scratch_.data(), count);
    DecodeValues(shape_.codec(), bytes, absl::MakeSpan(scratch_.data(), count));
  }
  return FindNonFinite(values) == values.size();
}

bool RoundSum::LookAt(Part& part) {
  for (int chunk = 0; chunk < part.payload->chunks(); ++chunk) {
    LookAt(part, chunk);
  }
  return part.finite;
}

void RoundSum::DoCheck(const RoundMessage& message) {
  const auto& offer = std::get<PartOffer>(message.body);
  const std::shared_ptr<Part> part =
      Find(offer.step, offer.shard, message.from);
  // Without its bytes: the part was dropped, and is coming again with a new
  // offer.
  if (part == nullptr || !part->payload->complete()) return;
  PartCheck check = PartCheck::kFine;
  if (part->payload->hash() != offer.hash) {
    check = PartCheck::kWrongHash;
  } else if (!LookAt(*part)) {
    check = PartCheck::kNotFinite;
  }
  sink_.OnPartChecked(message, check);
}

// A finite sum has finite parts: one check instead of one a part.
void RoundSum::SumAhead(const std::shared_ptr<Ahead>& ahead, int chunk) {
  if (ahead->sum->IsReady(chunk)) return;  // the round was closed meanwhile
  Combination combination;
  auto rule = RuleOf(0);
  if (!rule.ok()) return;
  combination.rule = *std::move(rule);
  for (auto& [member, part] : ahead->parts) {
    combination.parts.push_back(part);
    combination.samples.push_back(1);  // mean's sum does not depend on them
  }
  auto verdict = combination.rule->Decide(WholeParts(combination));
  if (!verdict.ok()) return;
  combination.verdict = *std::move(verdict);
  SumChunk(combination, chunk, *ahead->sum);
  const bool finite = IsFinite(ahead->sum->chunk(chunk));
  for (const auto& part : combination.parts) {
    if (finite) {
      part->looked_at[chunk] = true;
    } else {
      LookAt(*part, chunk);
    }
  }
}

// Rules that read whole parts have one shard, without gaps.
std::vector<RulePart> RoundSum::WholeParts(
    const Combination& combination) const {
  std::vector<RulePart> parts;
  for (size_t i = 0; i < combination.parts.size(); ++i) {
    absl::Span<const float> values;
    if (!combination.decoded.empty()) {
      values = combination.decoded[i];
    } else if (reads_whole_parts() && shape_.codec() == Codec::kRaw) {
      values = AsFloats(combination.parts[i]->payload->bytes());
    }
    parts.push_back({values, combination.samples[i]});
  }
  return parts;
}

absl::Status RoundSum::TakeParts(const SumRequest& request,
                                 Combination& combination) {
  for (const Contributor& contributor : request.contributors) {
    std::shared_ptr<Part> part =
        Find(request.step, request.shard, contributor.member);
    if (part == nullptr || !part->payload->complete()) {
      return Internal("the part of worker ", contributor.member.worker.value,
                      " is not here");
    }
    if (!LookAt(*part)) {
      return InvalidArgument("the part of worker ",
                             contributor.member.worker.value,
                             " holds NaN or infinity");
    }
    combination.parts.push_back(std::move(part));
    combination.samples.push_back(contributor.samples);
  }
  return absl::OkStatus();
}

absl::StatusOr<RoundSum::Combination> RoundSum::Decide(
    const SumRequest& request) {
  Combination combination;
  PACELINE_ASSIGN_OR_RETURN(combination.rule, RuleOf(request.step));
  if (shape_.values(request.shard) > 0) {
    PACELINE_RETURN_IF_ERROR(TakeParts(request, combination));
  } else {
    // Nothing to sum: the rule decides only on the members and the divisor.
    for (const Contributor& contributor : request.contributors) {
      auto part = std::make_shared<Part>();
      part->payload = pool_.Make(0);
      combination.parts.push_back(std::move(part));
      combination.samples.push_back(contributor.samples);
    }
  }
  if (reads_whole_parts() && shape_.codec() != Codec::kRaw) {
    for (const auto& part : combination.parts) {
      combination.decoded.emplace_back(shape_.values(request.shard));
      DecodeValues(shape_.codec(), part->payload->bytes(),
                   absl::MakeSpan(combination.decoded.back()));
    }
  }
  PACELINE_ASSIGN_OR_RETURN(combination.verdict,
                            combination.rule->Decide(WholeParts(combination)));
  return combination;
}

// The sum that was made while parts came, if it has these contributors.
std::shared_ptr<RoundPayload> RoundSum::FindAhead(
    const SumRequest& request) const {
  const absl::MutexLock lock(&mutex_);
  const auto shard = shards_.find({request.step, request.shard});
  if (shard == shards_.end() || shard->second.ahead == nullptr) return nullptr;
  const Ahead& ahead = *shard->second.ahead;
  const bool same = std::equal(
      ahead.members.begin(), ahead.members.end(), request.contributors.begin(),
      request.contributors.end(),
      [](const MemberId& a, const Contributor& b) { return a == b.member; });
  return same ? ahead.sum : nullptr;
}

void RoundSum::DoClose(const SumRequest& request) {
  {
    // The step has been applied meanwhile: no member waits for its sum.
    const absl::MutexLock lock(&mutex_);
    if (request.step < first_step_) return;
  }
  auto combination = Decide(request);
  if (!combination.ok()) {
    return sink_.OnSummed(
        request, nullptr,
        {0, std::string(combination.status().message()), {}, {}});
  }
  std::shared_ptr<RoundPayload> sum = FindAhead(request);
  if (sum == nullptr) sum = shape_.Make(request.shard, pool_);
  sink_.OnDecided(request, sum);
  for (int chunk = 0; chunk < sum->chunks(); ++chunk) {
    if (!sum->IsReady(chunk)) SumChunk(*combination, chunk, *sum);
  }
  SumVerdict verdict{combination->verdict.divisor, "", {}, {}};
  for (size_t i = 0; i < request.contributors.size(); ++i) {
    if (!std::binary_search(combination->verdict.used.begin(),
                            combination->verdict.used.end(),
                            static_cast<int>(i))) {
      verdict.dropped.push_back(request.contributors[i].member);
    }
  }
  if (options_.conflict && request.shard == 0) {
    verdict.cosine = CosineOf(*combination);
  }
  sink_.OnSummed(request, sum, verdict);
}

// The mean cosine over all pairs, weighted by the parts' lengths:
// (|sum of parts|^2 - sum of |part|^2) / ((n - 1) sum of |part|^2).
std::optional<double> RoundSum::CosineOf(const Combination& combination) {
  const size_t parts = combination.parts.size();
  if (parts < 2) return {};
  double squares = 0, square_of_sum = 0;
  std::vector<float> sum, part;
  for (int chunk = 0; chunk < combination.parts[0]->payload->chunks();
       ++chunk) {
    const size_t values = combination.parts[0]->payload->chunk(chunk).size() /
                          shape_.value_bytes();
    sum.assign(values, 0);
    part.resize(values);
    for (const auto& each : combination.parts) {
      DecodeValues(shape_.codec(), each->payload->chunk(chunk),
                   absl::MakeSpan(part));
      for (size_t i = 0; i < values; ++i) {
        sum[i] += part[i];
        squares += double{part[i]} * part[i];
      }
    }
    for (const float value : sum) square_of_sum += double{value} * value;
  }
  if (squares == 0) return {};
  const double cosine =
      (square_of_sum - squares) / (static_cast<double>(parts - 1) * squares);
  return std::clamp(cosine, -1.0, 1.0);
}

void RoundSum::SumChunk(const Combination& combination, int chunk,
                        RoundPayload& sum) {
  const absl::Span<uint8_t> bytes = sum.chunk(chunk);
  if (shape_.codec() == Codec::kRaw) {
    std::vector<RulePart> parts;
    for (size_t i = 0; i < combination.parts.size(); ++i) {
      parts.push_back({AsFloats(combination.parts[i]->payload->chunk(chunk)),
                       combination.samples[i]});
    }
    const size_t values = bytes.size() / sizeof(float);
    combination.rule->Combine(
        parts, combination.verdict, 0, values,
        absl::MakeSpan(reinterpret_cast<float*>(bytes.data()), values));
  } else {
    SumDecoded(combination, chunk, bytes);
  }
  sum.MarkReady(chunk, HashBytes(bytes));
}

// Decodes, combines and rounds once, kDecodedValues values at a time.
void RoundSum::SumDecoded(const Combination& combination, int chunk,
                          absl::Span<uint8_t> bytes) {
  const size_t count = combination.parts.size();
  scratch_.resize(std::max(scratch_.size(), (count + 1) * kDecodedValues));
  const size_t block_bytes = kDecodedValues * shape_.value_bytes();
  for (size_t at = 0; at < bytes.size(); at += block_bytes) {
    const absl::Span<uint8_t> into = bytes.subspan(at, block_bytes);
    const size_t values = into.size() / shape_.value_bytes();
    std::vector<RulePart> parts;
    for (size_t i = 0; i < count; ++i) {
      const absl::Span<float> decoded =
          absl::MakeSpan(scratch_).subspan(i * kDecodedValues, values);
      DecodeValues(
          shape_.codec(),
          combination.parts[i]->payload->chunk(chunk).subspan(at, into.size()),
          decoded);
      parts.push_back({decoded, combination.samples[i]});
    }
    const absl::Span<float> result =
        absl::MakeSpan(scratch_).subspan(count * kDecodedValues, values);
    combination.rule->Combine(parts, combination.verdict, 0, values, result);
    EncodeValues(shape_.codec(), result, into);
  }
}

}  // namespace paceline
