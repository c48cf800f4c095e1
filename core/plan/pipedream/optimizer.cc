#include "core/plan/pipedream/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <ranges>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/plan/memory.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// Two tables, both filled from the end of the graph:
//
//   states    0 ....... first ....... cut ........ last ........ all nodes
//             not yet   | stage on    | rest of    | runs on other
//             planned   | k devices   | the row    | machines
//                       |<-- a row: one run, on --->|
//                       |    each of M machines     |
//
//   row:   rest[k + r][first] = min over cut, k of
//                               max(stage(first, cut, k), rest[r][cut])
//   runs:  best[M + m][first] = min over last, M of
//                               max(run(row, M), best[m][last])
//
// A row depends on its last state and, where memory binds, on the devices after
// it.  Both tables leave out what takes longer than a bound; the solver tries a
// low bound first and doubles its excess until a plan is within it.

constexpr double kRounding = 1e-13;  // relative, of long sums

struct DeviceLevels {
  int devices = 1;   // in a machine
  int machines = 1;  // 1: there is only the inner level
  double near_bytes_per_second = 0;
  double far_bytes_per_second = 0;
};

// The nodes of state `last` that are not in state `first`, on the replicas of
// one machine.
struct RowStage {
  int first = 0;
  int last = 0;
  int replicas = 1;
  int rest = 0;  // devices of the row after this stage
};

// A row of stages, the same one on each of `machines`.
struct PipedreamRun {
  int first = 0;
  int last = 0;
  int machines = 1;
  int later = 0;  // devices after the run, for each of its machines
  std::vector<RowStage> stages;
};

int Groups(int count, int size) { return (count + size - 1) / size; }

// Returns the copies of weights and outputs that a stage keeps.
int VersionsOf(const RowStage& stage, int later) {
  return Groups(stage.rest + later, stage.replicas) + 1;
}

// Returns the most bytes, one version of each, that `devices` hold in any
// stages when `later` come after them.  A stage on m devices with n after it
// keeps at least 1 + n / m versions, so m devices hold no more than m stages of
// one device would.
double MostHeldBytes(double memory_bytes, int devices, int later) {
  double bytes = 0;
  for (int i = 0; i < devices; ++i) bytes += memory_bytes / (1 + later + i);
  return memory_bytes > 0 ? bytes : HUGE_VAL;
}

DeviceLevels LevelsOf(const Machines& machines) {
  // Machines of one device form a single level.  Several plans may be equally
  // good, and a flat cluster must get the same answer however it is written.
  const double far = machines.bytes_per_second.back();
  if (machines.levels() == 1 || machines.sizes[0] == 1) {
    return {machines.devices(), 1, far, far};
  }
  return {machines.sizes[0], machines.sizes[1], machines.bytes_per_second[0],
          far};
}

class PipedreamSolver {
 public:
  // `space` and `request` outlive the solver.
  PipedreamSolver(const StateSpace& space, const PipedreamRequest& request)
      : space_(space),
        levels_(LevelsOf(request.machines)),
        replicas_(request.replicas),
        transfers_(request.count_transfers),
        memory_(request.machines.memory_bytes),
        near_(space.states),
        bytes_(space.states),
        rest_(levels_.devices + 1, std::vector<double>(space.states)),
        first_(space.states) {
    for (int s = 0; s < space.states; ++s) {
      near_[s] = Transfer(s, levels_.near_bytes_per_second);
      bytes_[s] = space.output_bytes[s] + space.parameter_bytes[s];
    }
  }

  // Returns the runs of the best plan; none: nothing fits.
  std::vector<PipedreamRun> Solve();

  const DeviceLevels& levels() const { return levels_; }
  // Return seconds: to send twice the bytes of a state's boundary; to
  // synchronise a run between its machines, before division by machines.
  double Transfer(int state, double bytes_per_second) const {
    if (!transfers_ || state == space_.last()) return 0;
    return 2 * space_.boundary_bytes[state] / bytes_per_second;
  }
  double SyncSeconds(int first, int last, int machines) const;

 private:
  // A stage on these replicas takes compute x share + parameters x sync.
  struct Replicas {
    double share = 0;
    double sync = 0;
    double most_bytes = HUGE_VAL;
  };
  // The best runs from a state to the end.
  struct Cell {
    double seconds = HUGE_VAL;
    int last = 0;  // of the first run
    int machines = 0;
  };

  Replicas ReplicasOf(int replicas, int rest) const;
  double Seconds(int first, int last, const Replicas& replicas) const {
    if (bytes_[last] - bytes_[first] > replicas.most_bytes) return HUGE_VAL;
    return (space_.seconds[last] - space_.seconds[first]) * replicas.share +
           (space_.parameter_bytes[last] - space_.parameter_bytes[first]) *
               replicas.sync;
  }
  double Seconds(const RowStage& stage, bool is_first) const;
  int MostReplicas(int devices) const {
    return replicas_ ? devices : std::min(devices, 1);
  }
  void SolveRow(int last, int later, int machines, double most);
  void TakeStages(int replicas, int rest, bool is_first);
  void Fill(double most, double floor);
  void Extend(int last, int machines, int behind, double floor);
  std::vector<PipedreamRun> Runs(int machines, double seconds);
  RowStage Largest(int first, int devices, bool is_first, double most) const;
  bool Grow(std::vector<RowStage>& stages, double most) const;
  std::vector<RowStage> Stages(int first, double most) const;

  const StateSpace& space_;
  const DeviceLevels levels_;
  const bool replicas_;
  const bool transfers_;
  const double memory_;
  std::vector<double> near_;   // [states]: Transfer() inside a machine
  std::vector<double> bytes_;  // [states]: outputs and parameters

  // --- the row that was solved last ---
  int last_ = 0;
  int later_ = 0;
  double most_ = HUGE_VAL;
  // [devices + 1][states]: seconds of (state, last] on at most this many
  // devices, behind another stage.
  std::vector<std::vector<double>> rest_;
  std::vector<double> first_;  // [states]: the same on all, as a whole row

  std::vector<std::vector<Cell>> best_;  // [machines + 1][states]
};

double PipedreamSolver::SyncSeconds(int first, int last, int machines) const {
  const double bytes =
      space_.parameter_bytes[last] - space_.parameter_bytes[first];
  const double seconds =
      4.0 * (machines - 1) * bytes / (levels_.far_bytes_per_second * machines);
  return first == 0 ? seconds / levels_.devices : seconds;
}

PipedreamSolver::Replicas PipedreamSolver::ReplicasOf(int replicas,
                                                      int rest) const {
  const double m = replicas;
  Replicas made{1 / m, 4 * (m - 1) / (levels_.near_bytes_per_second * m) / m};
  if (memory_ > 0) {
    made.most_bytes = memory_ / VersionsOf({0, 0, replicas, rest}, later_);
  }
  return made;
}

double PipedreamSolver::Seconds(const RowStage& stage, bool is_first) const {
  const Replicas replicas = ReplicasOf(stage.replicas, stage.rest);
  const double seconds = Seconds(stage.first, stage.last, replicas);
  if (is_first) return seconds;
  return std::max({seconds, std::max(near_[stage.first], near_[stage.last]) *
                                replicas.share});
}

// --- rows ---

// Solves rows that end at `last` for runs on up to `machines` machines, and
// leaves out those that take longer than `most` seconds.
void PipedreamSolver::SolveRow(int last, int later, int machines, double most) {
  last_ = last;
  later_ = later;
  most_ = machines * most * (1 + 10 * kRounding);
  std::fill(rest_[0].begin(), rest_[0].end(), HUGE_VAL);
  std::fill(first_.begin(), first_.end(), HUGE_VAL);
  const int all = levels_.devices;
  for (int devices = 1; devices <= all; ++devices) {
    rest_[devices] = rest_[devices - 1];
    for (int k = 1; k <= MostReplicas(devices); ++k) {
      const int rest = devices - k;
      TakeStages(k, rest, /*is_first=*/false);
      // Without a memory bound more devices behind are never worse.
      if (transfers_ && (rest == 0 || devices == all || memory_ > 0)) {
        TakeStages(k, rest, /*is_first=*/true);
      }
    }
  }
  if (!transfers_) first_ = rest_[all];
}

// Puts stages on `replicas` before what `rest` devices hold behind each cut; no
// device: before nothing.
//   is_first  at the beginning of a row, whose transfers do not count
void PipedreamSolver::TakeStages(int replicas, int rest, bool is_first) {
  const Replicas made = ReplicasOf(replicas, rest);
  const auto sent = [&](int state) {
    return is_first ? 0 : near_[state] * made.share;
  };
  std::vector<double>& to = is_first ? first_ : rest_[replicas + rest];
  const auto take = [&](int cut, double behind) {
    behind = std::max(behind, sent(cut));
    if (behind > most_) return;
    for (const int s : space_.inside[cut] | std::views::reverse) {
      const double compute = space_.seconds[cut] - space_.seconds[s];
      // States before this one compute longer.
      if (compute * made.share > most_) break;
      to[s] =
          std::min(to[s], std::max({Seconds(s, cut, made), sent(s), behind}));
    }
  };
  if (rest == 0) return take(last_, 0);
  for (const int cut : space_.inside[last_]) take(cut, rest_[rest][cut]);
}

// --- runs ---

// Fills best_ with the plans within `most` seconds; all that take less than
// `floor` are equally good.  Of those, the one with the largest first run.
void PipedreamSolver::Fill(double most, double floor) {
  const int all = levels_.machines;
  best_.assign(all + 1, std::vector<Cell>(space_.states));
  best_[0][space_.last()].seconds = floor;
  for (int last = space_.last(); last > 0; --last) {
    // (machines behind the run, machines of the run) by devices after it
    std::map<int, std::vector<std::pair<int, int>>> places;
    for (int behind = 0; behind < all; ++behind) {
      const int ahead = (all - behind) * levels_.devices;
      if (best_[behind][last].seconds > most ||
          best_[behind][last].seconds == HUGE_VAL ||
          space_.seconds[last] > ahead * most * (1 + kRounding) ||
          bytes_[last] >
              (1 + kRounding) *
                  MostHeldBytes(memory_, ahead, behind * levels_.devices)) {
        continue;
      }
      for (int m = 1; m <= MostReplicas(all - behind); ++m) {
        // Without a memory bound the devices after a row do not count.
        const int later = memory_ > 0 ? Groups(behind * levels_.devices, m) : 0;
        places[later].emplace_back(behind, m);
      }
    }
    for (const auto& [later, runs] : places) {
      int largest = 0;
      for (const auto& [behind, m] : runs) largest = std::max(largest, m);
      SolveRow(last, later, largest, most);
      for (const auto& [behind, m] : runs) Extend(last, m, behind, floor);
    }
  }
}

// Puts the row that was solved last on `machines`, before `behind` others.
void PipedreamSolver::Extend(int last, int machines, int behind, double floor) {
  const double far = levels_.far_bytes_per_second;
  const double after = std::max(best_[behind][last].seconds, floor);
  for (const int s : space_.inside[last]) {
    double seconds = first_[s] + SyncSeconds(s, last, machines);
    if (s != 0) {
      seconds = std::max({seconds, Transfer(s, far), Transfer(last, far)});
    }
    seconds = std::max(seconds / machines, after);
    Cell& here = best_[behind + machines][s];
    if (seconds < here.seconds) here = {seconds, last, machines};
  }
}

std::vector<PipedreamRun> PipedreamSolver::Solve() {
  // No device is faster than its share of the compute.
  const double whole = space_.seconds[space_.last()];
  const double least = whole / (levels_.machines * levels_.devices);
  double seconds = HUGE_VAL;
  for (double excess = 1.0 / 16;; excess *= 2) {
    double most = least * (1 + excess);
    if (most >= whole) most = HUGE_VAL;
    Fill(most, 0);
    for (const std::vector<Cell>& cells : best_) {
      seconds = std::min(seconds, cells[0].seconds);
    }
    if (seconds <= most) break;
  }
  if (seconds == HUGE_VAL) return {};
  seconds *= 1 + kRounding;
  Fill(seconds, seconds);
  int machines = levels_.machines;
  while (best_[machines][0].seconds > seconds) --machines;
  return Runs(machines, seconds);
}

// --- the plan ---

std::vector<PipedreamRun> PipedreamSolver::Runs(int machines, double seconds) {
  std::vector<PipedreamRun> runs;
  for (int first = 0; first != space_.last(); first = runs.back().last) {
    const Cell& cell = best_[machines][first];
    machines -= cell.machines;
    PipedreamRun run{first,
                     cell.last,
                     cell.machines,
                     Groups(machines * levels_.devices, cell.machines),
                     {}};
    const double row = seconds * run.machines;
    SolveRow(run.last, run.later, run.machines, seconds);
    run.stages =
        Stages(first, std::max(row - SyncSeconds(first, run.last, run.machines),
                               first_[first]));
    runs.push_back(std::move(run));
  }
  return runs;
}

// Returns the largest stage that begins at `first`, takes at most `most`
// seconds and leaves a rest that does; of equal ones the one with the fewest
// replicas.
RowStage PipedreamSolver::Largest(int first, int devices, bool is_first,
                                  double most) const {
  RowStage largest{first, -1};
  const auto take = [&](const RowStage& stage) {
    if (largest.last != -1 &&
        space_.seconds[stage.last] <= space_.seconds[largest.last]) {
      return;
    }
    if (stage.last != last_ && rest_[stage.rest][stage.last] > most) return;
    if (Seconds(stage, is_first) <= most) largest = stage;
  };
  for (int k = 1; k <= MostReplicas(devices); ++k) take({first, last_, k, 0});
  if (largest.last != -1) return largest;
  for (int k = 1; k <= MostReplicas(devices - 1); ++k) {
    for (int rest = devices - k; rest >= 1; --rest) {
      for (const int cut : space_.inside[last_]) {
        if (absl::c_binary_search(space_.inside[cut], first)) {
          take({first, cut, k, rest});
        }
      }
    }
  }
  return largest;
}

// Gives one more replica to the slowest stage that can take it: no stage may
// then take more than `most` seconds or too much memory.  False: no stage can.
bool PipedreamSolver::Grow(std::vector<RowStage>& stages, double most) const {
  std::vector<RowStage> best;
  double slowest = -1;
  for (size_t i = 0; i < stages.size(); ++i) {
    const double now = Seconds(stages[i], i == 0);
    std::vector<RowStage> grown = stages;
    ++grown[i].replicas;
    for (size_t j = 0; j < i; ++j) ++grown[j].rest;
    bool fits = now > slowest;
    for (size_t j = 0; j <= i && fits; ++j) {
      fits = Seconds(grown[j], j == 0) <= most;
    }
    if (!fits) continue;
    slowest = now;
    best = std::move(grown);
  }
  if (best.empty()) return false;
  stages = std::move(best);
  return true;
}

// Returns the stages of (first, last_], none of which takes more than `most`
// seconds.  Each is as large as possible, which keeps them few.  Spare devices
// become replicas where they do no harm.
std::vector<RowStage> PipedreamSolver::Stages(int first, double most) const {
  most *= 1 + kRounding;
  std::vector<RowStage> stages;
  int devices = levels_.devices;
  for (int from = first; from != last_; from = stages.back().last) {
    stages.push_back(Largest(from, devices, stages.empty(), most));
    PACELINE_CHECK(stages.back().last != -1, "no stage from state ", from,
                   " to ", last_, " on ", devices, " devices in ", most, " s");
    devices = stages.back().rest;
  }
  // So far `rest` is a budget; set it to the devices used.
  int after = 0;
  for (size_t i = stages.size(); i-- > 0;) {
    stages[i].rest = after;
    after += stages[i].replicas;
  }
  while (replicas_ && after < levels_.devices && Grow(stages, most)) ++after;
  return stages;
}

// --- the answer ---

absl::Status CheckRequest(const PipedreamRequest& request) {
  PACELINE_RETURN_IF_ERROR(CheckMachines(request.machines));
  const int levels = request.machines.levels();
  const int most = levels == 1 ? 4 * kMostInnerDevices : kMostInnerDevices;
  for (const int size : request.machines.sizes) {
    if (size <= most) continue;
    return InvalidArgument(
        "a level of ", size, " devices, at most ", most, " are planned in ",
        levels == 1 ? "a single level" : "each of two levels");
  }
  return absl::OkStatus();
}

double StateBytes(const StateSpace& space, int state) {
  return space.output_bytes[state] + space.parameter_bytes[state];
}

absl::Status NothingFits(const GraphProfile& graph, const StateSpace& space,
                         const Machines& machines) {
  const ProfileNode* hardest = graph.nodes.data();
  const auto bytes_of = [](const ProfileNode& node) {
    return node.output_bytes + node.parameter_bytes;
  };
  for (const ProfileNode& node : graph.nodes) {
    if (bytes_of(node) > bytes_of(*hardest)) hardest = &node;
  }
  const double bytes = bytes_of(*hardest);
  const double memory = machines.memory_bytes;
  const std::string node =
      absl::StrCat(hardest->id, " (line ", hardest->line, ")");
  if (bytes > memory) {
    return ResourceExhausted(
        "no plan fits: ", node, " alone needs ", BytesTextOfSum(bytes),
        " for parameters and outputs, a device has ", BytesTextOfSum(memory),
        ": ", BytesTextOfSum(bytes - memory),
        " too much; use a smaller mini-batch or larger devices");
  }
  return ResourceExhausted(
      "no plan fits: one version of parameters and outputs takes ",
      BytesTextOfSum(StateBytes(space, space.last())), ", ",
      Counted(machines.devices(), "device"),
      machines.devices() == 1 ? " holds" : " hold", " at most ",
      BytesTextOfSum(MostHeldBytes(memory, machines.devices(), 0)),
      ", as stages keep a version for each mini-batch on its way; the hardest "
      "to place, ",
      node, ", needs ", BytesTextOfSum(bytes), " of ", BytesTextOfSum(memory),
      " for each; use a smaller mini-batch or larger devices");
}

// Appends the nodes of (first, last], each after those that it needs.
LayerRange Append(const StateSpace& space, int first, int last,
                  std::vector<int>& order) {
  std::vector<int> nodes = space.NodesBetween(first, last);
  std::ranges::sort(nodes, {}, [&](int n) { return space.node_rank[n]; });
  const int begin = static_cast<int>(order.size());
  order.insert(order.end(), nodes.begin(), nodes.end());
  return {begin, static_cast<int>(order.size())};
}

// Computes the formula again for the final stage, in the released order of
// operations, because the running sums of the search round differently.
PipedreamStage StageOf(const StateSpace& space, const PipedreamSolver& solver,
                       const PipedreamRun& run, const RowStage& placed) {
  const DeviceLevels& levels = solver.levels();
  const double near = levels.near_bytes_per_second;
  const int m = placed.replicas;
  PipedreamStage stage;
  stage.machines = run.machines;
  stage.versions = VersionsOf(placed, run.later);
  stage.memory_bytes =
      (StateBytes(space, placed.last) - StateBytes(space, placed.first)) *
      static_cast<double>(stage.versions);
  stage.one_device_seconds =
      space.seconds[placed.last] - space.seconds[placed.first];
  const double sync = 4.0 * (m - 1) *
                      (space.parameter_bytes[placed.last] -
                       space.parameter_bytes[placed.first]) /
                      (near * m);
  const double between = solver.SyncSeconds(run.first, run.last, run.machines);
  stage.seconds =
      ((stage.one_device_seconds + sync) / m + between) / run.machines;
  if (placed.first != run.first) {
    const double inner = std::max(solver.Transfer(placed.first, near * m),
                                  solver.Transfer(placed.last, near * m));
    if (inner > 0) stage.transfer_seconds = (inner + between) / run.machines;
  }
  const double far = levels.far_bytes_per_second * run.machines;
  for (const int end : {placed.first, placed.last}) {
    if (run.first == 0 || (end != run.first && end != run.last)) continue;
    stage.transfer_seconds =
        std::max(stage.transfer_seconds, solver.Transfer(end, far));
  }
  return stage;
}

void AddRun(const StateSpace& space, const PipedreamSolver& solver,
            const PipedreamRun& run, int first_machine,
            PipedreamAnswer& answer) {
  int first_device = first_machine * solver.levels().devices;
  for (const RowStage& placed : run.stages) {
    PipedreamStage stage = StageOf(space, solver, run, placed);
    for (int machine = 0; machine < run.machines; ++machine) {
      for (int i = 0; i < placed.replicas; ++i) {
        stage.devices.push_back(machine * solver.levels().devices +
                                first_device + i);
      }
    }
    stage.nodes = Append(space, placed.first, placed.last, answer.node_order);
    answer.bottleneck_seconds = std::max(
        {answer.bottleneck_seconds, stage.seconds, stage.transfer_seconds});
    answer.devices_used += static_cast<int>(stage.devices.size());
    answer.stages.push_back(std::move(stage));
    first_device += placed.replicas;
  }
}

// Returns the released optimizer's own time for the whole graph on every
// device.
double DataParallelSeconds(const StateSpace& space, const Machines& machines) {
  double seconds = space.seconds[space.last()];
  int within = 1;
  for (int level = 0; level < machines.levels(); ++level) {
    const int size = machines.sizes[level];
    const double sync = 4.0 * (size - 1) * space.parameter_bytes[space.last()] /
                        (machines.bytes_per_second[level] * size) / within;
    seconds = (seconds + sync) / size;
    within = size;
  }
  return seconds;
}

std::string BoundText(const GraphProfile& graph,
                      const PipedreamAnswer& answer) {
  size_t slowest = 0;
  const auto pace = [&](size_t s) {
    return std::max(answer.stages[s].seconds,
                    answer.stages[s].transfer_seconds);
  };
  for (size_t s = 1; s < answer.stages.size(); ++s) {
    if (pace(s) > pace(slowest)) slowest = s;
  }
  const PipedreamStage& stage = answer.stages[slowest];
  const auto name = [&](int at) {
    return graph.nodes[answer.node_order[at]].id;
  };
  const bool computes = stage.seconds >= stage.transfer_seconds;
  return absl::StrCat(
      computes ? "compute and synchronisation" : "transfers", " of stage ",
      slowest + 1, " of ", answer.stages.size(), ", ", name(stage.nodes.first),
      " .. ", name(stage.nodes.last - 1), " on ",
      Counted(stage.devices.size(), "device"),
      ", set the pace: ", SecondsText(answer.bottleneck_seconds),
      " a mini-batch");
}

std::string WhyOf(const GraphProfile& graph, const PipedreamRequest& request,
                  const PipedreamAnswer& answer) {
  const int devices = request.machines.devices();
  const int left_out = devices - answer.devices_used;
  std::string used = devices == 1
                         ? "the device is used"
                         : absl::StrCat("all ", devices, " devices are used");
  if (left_out > 0) {
    used = absl::StrCat(left_out, " of ", devices,
                        " devices are left out: with them it would not be "
                        "faster");
  }
  return absl::StrCat(
      BoundText(graph, answer), absl::StrFormat("; %.2f", answer.speed_up),
      " times one machine's; all of it on every device would take ",
      SecondsText(answer.data_parallel_seconds), "; ", used,
      request.count_transfers
          ? ". Transfers are counted."
          : ". Transfers are not counted, as the cost model has it.");
}

PipedreamAnswer AnswerOf(const StateSpace& space,
                         const PipedreamRequest& request,
                         const PipedreamSolver& solver,
                         const std::vector<PipedreamRun>& runs) {
  PipedreamAnswer answer;
  int first_machine = 0;
  for (const PipedreamRun& run : runs) {
    AddRun(space, solver, run, first_machine, answer);
    first_machine += run.machines;
  }
  answer.one_machine_seconds = space.seconds[space.last()];
  answer.lower_bound_seconds =
      answer.one_machine_seconds / request.machines.devices();
  if (answer.bottleneck_seconds > 0) {
    answer.speed_up = answer.one_machine_seconds / answer.bottleneck_seconds;
  }
  answer.data_parallel_seconds = DataParallelSeconds(space, request.machines);
  answer.shape = Joined(answer.stages, "-", [](const PipedreamStage& stage) {
    return stage.devices.size();
  });
  return answer;
}

}  // namespace

absl::StatusOr<PipedreamAnswer> PlanPipedream(const GraphProfile& graph,
                                              const StateSpace& space,
                                              const PipedreamRequest& request) {
  PACELINE_RETURN_IF_ERROR(CheckRequest(request));
  PipedreamSolver solver(space, request);
  const std::vector<PipedreamRun> runs = solver.Solve();
  if (runs.empty()) return NothingFits(graph, space, request.machines);
  PipedreamAnswer answer = AnswerOf(space, request, solver, runs);
  answer.why = WhyOf(graph, request, answer);
  return answer;
}

}  // namespace paceline
