// The network of a simulated world: links that are cut, and messages that are
// lost, come twice, late, or in another order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/core/world/kernel.h"

namespace paceline::world {

// All links treat their messages like this.
struct Conditions {
  double request_loss = 0;  // of what somebody is asked, or is given
  double reply_loss = 0;    // of what is said in return
  double duplicate = 0;
  int64_t delay_us = 50;  // at least
  int64_t spread_us = 2950;
};

// A link that carries nothing, one way.  Ends have numbers, which a world gives
// them.
struct CutLink {
  static constexpr int64_t kForGood = INT64_MAX;
  bool is_for_good() const { return until_us == kForGood; }

  int64_t from = 0;
  int64_t to = 0;
  int64_t since_us = 0;
  int64_t until_us = kForGood;
};

// Thread-compatible.
class Network {
 public:
  // kernel: outlives it.
  //   usual  without faults
  Network(Kernel& kernel, Conditions usual) : kernel_(kernel), usual_(usual) {}

  // --- Links.  O(cuts) each; there are few ---
  // Takes the place of an earlier cut of this link.
  void Cut(int64_t from, int64_t to, int64_t until_us) {
    std::erase_if(cuts_, [&](const CutLink& cut) {
      return (cut.from == from && cut.to == to) ||
             cut.until_us <= kernel_.now_us();
    });
    cuts_.push_back({from, to, kernel_.now_us(), until_us});
  }
  // Null: the link is whole.
  const CutLink* FindCut(int64_t from, int64_t to) const {
    for (const CutLink& cut : cuts_) {
      if (cut.from == from && cut.to == to && kernel_.now_us() < cut.until_us) {
        return &cut;
      }
    }
    return nullptr;
  }
  const std::vector<CutLink>& cuts() const { return cuts_; }
  template <typename Which>
  void Heal(const Which& which) {
    std::erase_if(cuts_, which);
  }

  // --- Messages ---
  // The conditions from now on, to be made worse by the caller.  They last that
  // long at least, with earlier changes that have not ended.
  Conditions& Change(int64_t for_us) {
    if (!is_disturbed()) disturbed_ = usual_;
    until_us_ = std::max(until_us_, kernel_.now_us() + for_us);
    return disturbed_;
  }
  void EndTrouble() { until_us_ = 0; }
  const Conditions& conditions() const {
    return is_disturbed() ? disturbed_ : usual_;
  }
  bool Loses(bool is_request) {
    const Conditions& now = conditions();
    return kernel_.Chance(is_request ? now.request_loss : now.reply_loss);
  }
  int64_t Delay() {
    const Conditions& now = conditions();
    return kernel_.Between(now.delay_us, now.delay_us + now.spread_us);
  }

  // arrive() becomes a task of `to` once, not at all, or twice.  The caller
  // asks whether the link is cut.
  template <typename Arrive>
  void Send(Process& to, bool is_request, Arrive arrive) {
    if (Loses(is_request)) return;
    if (kernel_.Chance(conditions().duplicate)) {
      kernel_.AfterOn(to, Delay(), arrive);
    }
    kernel_.AfterOn(to, Delay(), std::move(arrive));
  }

 private:
  bool is_disturbed() const { return kernel_.now_us() < until_us_; }

  Kernel& kernel_;
  const Conditions usual_;
  Conditions disturbed_;
  int64_t until_us_ = 0;
  std::vector<CutLink> cuts_;
};

// One direction of a connection, which keeps its messages in order.
struct Stream {
  // Draws how long the next message takes; it comes after the one before.
  int64_t NextDelay(Kernel& kernel) {
    using Range = std::pair<int64_t, int64_t>;
    const auto [low, high] = kernel.now_us() < slow_until_us
                                 ? Range{20'000, 250'000}
                                 : Range{200, 3'000};
    last_us =
        std::max(last_us + 1, kernel.now_us() + kernel.Between(low, high));
    return last_us - kernel.now_us();
  }

  int64_t last_us = 0;  // delivery of the last message
  int64_t slow_until_us = 0;
};

}  // namespace paceline::world
