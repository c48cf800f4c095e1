#include "core/recover/order.h"

#include <algorithm>

namespace paceline {

std::optional<int64_t> StepToFinish(const std::vector<RunPlace>& places,
                                    const std::map<MemberId, KeptState>& kept,
                                    int64_t newest) {
  int64_t furthest = 0;
  for (const auto& [process, state] : kept) {
    furthest = std::max(furthest, state.applied);
  }
  if (furthest <= newest) return std::nullopt;
  std::set<int> reached;  // first layers of stages
  for (const RunPlace& place : places) {
    const auto found = kept.find(place.process);
    if (found == kept.end()) continue;
    const KeptState& state = found->second;
    if (state.applied == furthest ||
        (state.applied == furthest - 1 && state.held == furthest)) {
      reached.insert(place.layers.first);
    }
  }
  const bool all =
      std::all_of(places.begin(), places.end(), [&](const RunPlace& place) {
        return reached.count(place.layers.first) > 0;
      });
  return all ? std::optional<int64_t>(furthest) : std::nullopt;
}

std::map<MemberId, std::vector<Follow>> FollowersOf(
    const std::vector<RunPlace>& places, const FollowRequest& request) {
  std::map<MemberId, std::vector<Follow>> followers_of;
  const auto& ring = request.ring;
  for (size_t i = 0; i < places.size();) {
    const LayerRange layers = places[i].layers;
    const MemberId source = places[i].process;
    std::set<MachineId> holding;
    for (; i < places.size() && places[i].layers == layers; ++i) {
      // Nobody else has the state that others copy, where states differ.
      if (request.states_differ && places[i].process != source) continue;
      const auto owner = request.machines.find(places[i].process);
      if (owner != request.machines.end()) holding.insert(owner->second);
    }
    const auto first = request.machines.find(source);
    const auto at =
        std::find_if(ring.begin(), ring.end(), [&](const auto& each) {
          return first != request.machines.end() && each.first == first->second;
        });
    const size_t begin = at == ring.end() ? 0 : at - ring.begin() + 1;
    for (size_t n = 0; n < ring.size(); ++n) {
      if (static_cast<int>(holding.size()) > request.wanted) break;
      const auto& [machine, process] = ring[(begin + n) % ring.size()];
      if (!holding.insert(machine).second) continue;
      followers_of[process].push_back({source, layers});
    }
  }
  return followers_of;
}

bool IsTransient(absl::StatusCode code) {
  return code != absl::StatusCode::kInvalidArgument &&
         code != absl::StatusCode::kInternal &&
         code != absl::StatusCode::kUnimplemented &&
         code != absl::StatusCode::kUnauthenticated;
}

bool MakesUnfit(absl::StatusCode code) {
  return code == absl::StatusCode::kNotFound ||
         code == absl::StatusCode::kPermissionDenied ||
         code == absl::StatusCode::kFailedPrecondition;
}

JobReport Believed(JobReport report, OrderNumber newest,
                   std::optional<int64_t> attempt) {
  if (report.echo > newest) report.echo = {};
  const auto unheard_of = [&attempt](int64_t said) {
    return !attempt.has_value() || said > *attempt;
  };
  if (unheard_of(report.attempt)) {
    report.attempt = report.step = 0;
    report.phase = WorkPhase::kIdle;
    report.error = absl::OkStatus();
    report.kept.reset();
  }
  if (unheard_of(report.floor.attempt)) report.floor = {};
  if (report.pieces.has_value()) {
    std::erase_if(*report.pieces, [&unheard_of](const Piece& piece) {
      return unheard_of(piece.cut.attempt);
    });
  }
  return report;
}

}  // namespace paceline
