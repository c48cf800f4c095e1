// A member of a round group that computes nothing: hands a gradient in when it
// is told to, and says when the result was applied.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/round/view.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/rounds/round_exchange.h"

namespace paceline {

struct BenchReduction {
  int64_t attempt = 1;  // greater than that of the one before
  int64_t bytes = 0;
  int shards = 1;
  std::string mode = "rolling";
};

// Opens a member's way to the others.
using OpenTransport =
    std::function<absl::StatusOr<std::shared_ptr<RoundTransport>>(
        const MemberId& self, RoundSink* sink)>;

// Thread-compatible.
class BenchMember final : public RoundObserver {
 public:
  // Member `self` of as many as there are addresses.
  BenchMember(const OpenTransport& open, int self,
              const std::vector<std::string>& addresses,
              const BenchReduction& reduction);
  ~BenchMember() override;

  // Waits until a part is wanted, and makes one.
  void Prepare();
  // Hands it in and applies the result; crashes when that is not the sum.
  void Reduce();

  void OnRound(const v1::RoundRecord& /*record*/) override {}
  void OnMemberChanged() override {}

 private:
  RoundTurn Await(RoundTurn::Kind kind);

  const int self_;
  const int members_;
  const SystemClock clock_;
  std::vector<float> gradient_;
  RoundTurn turn_;
  std::unique_ptr<RoundExchange> exchange_;
  std::shared_ptr<RoundTransport> transport_;
};

}  // namespace paceline
