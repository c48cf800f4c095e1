// Scripts state planning problems small enough to solve in one's head, and ask
// for placements, bounds, costs and cuts.
#include "tests/support/script.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/plan/cost.h"
#include "core/plan/cost_table.h"
#include "core/plan/cut.h"
#include "core/plan/plan.h"
#include "core/plan/search/policies.h"
#include "core/plan/search/policy.h"
#include "gtest/gtest.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

// A number of a layer, a device or a problem, by its name.
template <typename Struct>
using Numbers = std::map<std::string, double Struct::*>;

const Numbers<LayerCost> kOfLayers = {
    {"forward_seconds", &LayerCost::forward_seconds},
    {"backward_seconds", &LayerCost::backward_seconds},
    {"output_bytes", &LayerCost::output_bytes},
    {"parameter_bytes", &LayerCost::parameter_bytes},
    {"borrowed_bytes", &LayerCost::borrowed_bytes},
    {"kept_bytes", &LayerCost::kept_bytes}};
const Numbers<Device> kOfDevices = {
    {"speed", &Device::speed},
    {"memory_bytes", &Device::memory_bytes},
    {"frame_seconds", &Device::frame_seconds},
    {"frame_seconds_per_byte", &Device::frame_seconds_per_byte}};
const Numbers<PlanProblem> kOfProblems = {
    {"parameter_copies", &PlanProblem::parameter_copies},
    {"owner_copies", &PlanProblem::owner_copies},
    {"reserved_bytes", &PlanProblem::reserved_bytes}};
const std::map<std::string, bool PlanProblem::*> kFlags = {
    {"training", &PlanProblem::training},
    {"overlap", &PlanProblem::overlap},
    {"replicas", &PlanProblem::replicas},
    {"uneven_shares", &PlanProblem::uneven_shares},
    {"splits", &PlanProblem::splits}};

// problem SECONDS... on SPEEDS...   of ProblemOf(); 12*1 is twelve times 1
// layer | device INDEX|all NAME NUMBER
// measured DEVICE SECONDS...        its layer_seconds
// links BYTES_PER_SECOND LATENCY    of all; link FROM TO ...: of one pair
// outputs BYTES...                  of the first layers
// tie OWNER USER BYTES
// set NAME NUMBER                   of the problem
// drop layers | links | link        all of them; the last row; its last link
// check | bound | packing | count
// solve POLICY
// cost FIRST-LAST:DEVICE,...:SHARE,... ...    of a placement of such stages
// shares FIRST-LAST DEVICE...
// cut LAYERS STAGES | cut-at LAYERS CUT... | deal STAGES WORKERS LAYERS BATCHES
// cut-for-dealing STAGES
// cut-further STAGES FIRST-LAST:DEVICE ...
class PlanScript final : public Script {
 private:
  static double Real(const std::string& word) { return std::stod(word); }
  double Real(size_t i) const { return Real(Word(i)); }

  std::vector<double> RealsAt(size_t i) const {
    std::vector<double> numbers;
    for (; Has(i) && words_[i] != "on"; ++i) {
      const std::vector<std::string> parts = absl::StrSplit(words_[i], '*');
      const int times = parts.size() > 1 ? std::stoi(parts[0]) : 1;
      numbers.insert(numbers.end(), times, Real(parts.back()));
    }
    return numbers;
  }
  static LayerRange RangeOf(const std::string& text) {
    const std::pair<std::string, std::string> ends = absl::StrSplit(text, '-');
    return {std::stoi(ends.first), std::stoi(ends.second)};
  }
  Placement PlacementAt(size_t i) const {
    Placement placement;
    for (; Has(i); ++i) {
      const std::vector<std::string> parts = absl::StrSplit(words_[i], ':');
      PlacedStage& stage = placement.emplace_back();
      stage.layers = RangeOf(parts[0]);
      for (const auto each : absl::StrSplit(parts[1], ',', absl::SkipEmpty())) {
        stage.devices.push_back(std::stoi(std::string(each)));
      }
      stage.shares = {1};
      if (parts.size() < 3) continue;
      stage.shares.clear();
      for (const auto each : absl::StrSplit(parts[2], ',', absl::SkipEmpty())) {
        stage.shares.push_back(Real(std::string(each)));
      }
    }
    return placement;
  }
  template <typename Struct>
  void SetNumber(const Numbers<Struct>& numbers, std::vector<Struct>& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (Word(1) != "all" && Number(1) != static_cast<int64_t>(i)) continue;
      all[i].*numbers.at(Word(2)) = Real(3);
    }
  }

  bool State(const std::string& verb) {
    PlanProblem& p = problem_;
    if (verb == "problem") {
      size_t on = 1;
      while (Word(on) != "on") ++on;
      p = ProblemOf(RealsAt(1), RealsAt(on + 1));
    } else if (verb == "layer") {
      SetNumber(kOfLayers, p.layers);
    } else if (verb == "device") {
      SetNumber(kOfDevices, p.devices);
    } else if (verb == "measured") {
      p.devices[Number(1)].layer_seconds = RealsAt(2);
    } else if (verb == "links") {
      SetLinks(p, {Real(1), Real(2)});
    } else if (verb == "link") {
      p.links[Number(1)][Number(2)] = {Real(3), Real(4)};
    } else if (verb == "outputs") {
      SetOutputs(p, RealsAt(1));
    } else if (verb == "tie") {
      p.ties = {
          {static_cast<int>(Number(1)), static_cast<int>(Number(2)), Real(3)}};
    } else if (verb == "drop") {
      if (Word(1) == "layers") p.layers.clear();
      if (Word(1) == "links") p.links.pop_back();
      if (Word(1) == "link") p.links.back().pop_back();
    } else if (verb == "set") {
      Set(Word(1));
    } else {
      return false;
    }
    return true;
  }
  void Set(const std::string& name) {
    if (name == "stages") {
      problem_.stages = static_cast<int>(Number(2));
    } else if (name == "micro_batches") {
      problem_.micro_batches = Number(2);
    } else if (name == "micro_batches_per_sync") {
      problem_.micro_batches_per_sync = Number(2);
    } else if (const auto flag = kFlags.find(name); flag != kFlags.end()) {
      problem_.*flag->second = Number(2) != 0;
    } else {
      problem_.*kOfProblems.at(name) = Real(2);
    }
  }

  static std::string TextOf(const Placement& placement) {
    return absl::StrJoin(
        placement, ", ", [](std::string* out, const PlacedStage& stage) {
          absl::StrAppend(out, stage.layers.first, "-", stage.layers.last,
                          " on ", absl::StrJoin(stage.devices, " "));
          if (stage.devices.size() < 2) return;
          absl::StrAppend(out, " by ", absl::StrJoin(stage.shares, " "));
        });
  }
  static std::string TextOf(const std::vector<LayerRange>& ranges) {
    return absl::StrJoin(ranges, " ", [](std::string* out, LayerRange range) {
      absl::StrAppend(out, range.first, "-", range.last);
    });
  }
  template <typename Value, typename Tell>
  void SayOrWhyNot(const absl::StatusOr<Value>& value, const Tell& tell) {
    Say(value.ok() ? tell(*value) : value.status().ToString());
  }
  void Solve(const std::string& policy) {
    SayOrWhyNot(SolvePlan(policy, problem_, {}), [](const PlanAnswer& answer) {
      return absl::StrCat(TextOf(answer.placement), "\nstep ",
                          answer.cost.step_seconds, " s, bound ",
                          answer.lower_bound_seconds, " s, gap ", answer.gap,
                          answer.exact ? ", exact\n" : "\n", answer.why);
    });
  }
  void Cost(const Placement& placement) {
    SayOrWhyNot(CostOf(problem_, placement), [&](const PlacementCost& cost) {
      return absl::StrCat(
          "stages ", absl::StrJoin(cost.stage_seconds, " "), ", transfers ",
          absl::StrJoin(cost.transfer_seconds, " "), ", bottleneck ",
          cost.bottleneck_seconds, ", step ", cost.step_seconds, "\n",
          CheckMemory(problem_, placement, cost).ToString());
    });
  }
  bool Ask(const std::string& verb) {
    if (verb == "check") {
      Say(CheckProblem(problem_).ToString());
    } else if (verb == "bound") {
      Say(absl::StrCat("bound: ", LowerBoundSeconds(problem_)));
    } else if (verb == "packing") {
      Say(absl::StrCat("bound: ", PackingBoundSeconds(CostTable(problem_))));
    } else if (verb == "count") {
      Say(absl::StrCat("placements: ", CountPlacements(problem_)));
    } else if (verb == "solve") {
      Solve(Word(1));
    } else if (verb == "cost") {
      Cost(PlacementAt(1));
    } else if (verb == "shares") {
      std::vector<int> devices;
      for (const double each : RealsAt(2)) {
        devices.push_back(static_cast<int>(each));
      }
      const CostTable table(problem_);
      Say(absl::StrJoin(SharesFor(table, RangeOf(Word(1)), devices), " "));
    } else {
      return false;
    }
    return true;
  }
  bool Cut(const std::string& verb) {
    const auto number = [this](size_t i) {
      return static_cast<int>(Number(i));
    };
    const auto text = [](const auto& ranges) { return TextOf(ranges); };
    if (verb == "cut") {
      SayOrWhyNot(CutEqually(number(1), number(2)), text);
    } else if (verb == "cut-at") {
      std::vector<int> cuts;
      for (size_t i = 2; Has(i); ++i) cuts.push_back(number(i));
      SayOrWhyNot(CutAt(number(1), cuts), text);
    } else if (verb == "deal") {
      SayOrWhyNot(DealStages({number(1), number(2), number(3), number(4)}),
                  [](const Dealing& dealing) {
                    return absl::StrCat(dealing.stages, " stages on ",
                                        dealing.workers);
                  });
    } else if (verb == "cut-for-dealing") {
      Say(TextOf(CutForDealing(problem_, number(1))));
    } else if (verb == "cut-further") {
      const SharedStages shared =
          CutFurther(problem_, PlacementAt(2), number(1));
      Say(absl::StrCat(TextOf(shared.stages), " on ",
                       absl::StrJoin(shared.holder_of, " ")));
    } else {
      return false;
    }
    return true;
  }
  bool Do(const std::string& verb) override {
    return State(verb) || Ask(verb) || Cut(verb);
  }

  PlanProblem problem_;
};

TEST(PlanScripts, OfSmallProblems) {
  ExpectAnswers("core/plan_problems", [](const std::string& script) {
    return PlanScript().Play(script);
  });
}

}  // namespace
}  // namespace paceline
