#include "tests/bench/peers/round_member.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr int64_t kSamples = 32;

MemberId BenchId(int member) {
  return {WorkerId{member + 1}, Incarnation{static_cast<uint64_t>(member) + 1}};
}

GroupOrder GroupOf(const std::vector<std::string>& addresses) {
  GroupOrder group;
  group.view.id = {1, 1};
  for (size_t i = 0; i < addresses.size(); ++i) {
    const MemberId id = BenchId(static_cast<int>(i));
    group.view.members.push_back({id, 0});
    group.workers.push_back({id, absl::StrCat("w", i), addresses[i]});
  }
  group.view.leveller = BenchId(0);
  group.uploader = BenchId(0);
  return group;
}

}  // namespace

BenchMember::BenchMember(const OpenTransport& open, int self,
                         const std::vector<std::string>& addresses,
                         const BenchReduction& reduction)
    : self_(self),
      members_(static_cast<int>(addresses.size())),
      gradient_(static_cast<size_t>(reduction.bytes) / sizeof(float)) {
  RoundExchangeOptions options;
  options.attempt = reduction.attempt;
  options.self = BenchId(self);
  options.aggregation.mode = reduction.mode;
  options.aggregation.shards = reduction.shards;
  // Nobody is skipped, however slow.
  options.aggregation.min_parts = members_;
  options.aggregation.deadline = 600;
  options.values = gradient_.size();
  options.total_steps = std::numeric_limits<int64_t>::max();
  options.state_hash = 1;
  options.lease = absl::Minutes(10);
  exchange_ = std::make_unique<RoundExchange>(options, clock_, *this);
  auto transport = open(options.self, exchange_.get());
  PACELINE_CHECK(transport.ok(), transport.status().ToString());
  transport_ = *std::move(transport);
  const absl::Status started = exchange_->Start(*transport_);
  PACELINE_CHECK(started.ok(), started.ToString());
  exchange_->OnGroup(GroupOf(addresses));
}

BenchMember::~BenchMember() {
  transport_->Close();
  exchange_->Stop();
}

RoundTurn BenchMember::Await(RoundTurn::Kind kind) {
  auto turn = exchange_->AwaitTurn();
  PACELINE_CHECK(turn.ok(), turn.status().ToString());
  PACELINE_CHECK(turn->kind == kind,
                 "another turn: ", static_cast<int>(turn->kind));
  return *std::move(turn);
}

void BenchMember::Prepare() {
  turn_ = Await(RoundTurn::Kind::kPart);
  std::fill(gradient_.begin(), gradient_.end(), static_cast<float>(self_ + 1));
}

void BenchMember::Reduce() {
  const int64_t step = turn_.step;
  PartOptions part;
  part.step = step;
  part.division = DivisionOf(turn_.view, step);
  part.gradient = absl::MakeSpan(gradient_);
  exchange_->BeginPart(part);
  exchange_->MarkReady(0);
  exchange_->FinishPart(kSamples);

  turn_ = Await(RoundTurn::Kind::kApply);
  exchange_->AwaitPartReleased();
  PACELINE_CHECK(turn_.divisor == kSamples * members_, "divisor ",
                 turn_.divisor);
  // As an engine takes it: read where it lies.
  const auto chunks = ResultInPlace(turn_, exchange_->shape());
  PACELINE_CHECK(chunks.has_value(), "a result that is to be copied");
  const auto sum = static_cast<float>(members_ * (members_ + 1) / 2);
  for (const absl::Span<const float> chunk : *chunks) {
    for (const size_t at : {size_t{0}, chunk.size() / 3, chunk.size() - 1}) {
      PACELINE_CHECK(chunk[at] == sum, "value ", at, " is ", chunk[at],
                     ", not ", sum);
    }
  }
  turn_ = {};
  exchange_->OnApplied(step + 1,
                       /*state_hash=*/static_cast<uint64_t>(step) + 1);
}

}  // namespace paceline
