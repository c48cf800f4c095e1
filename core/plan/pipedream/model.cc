#include "core/plan/pipedream/model.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/counted.h"
#include "core/base/errors.h"
#include "core/base/status_macros.h"
#include "core/plan/memory.h"
#include "core/plan/pipedream/levels.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// The position of a stage in the order of a plan's stages.
struct Seat {
  const PipedreamRun* run;
  int first_machine;  // first machine that holds the run
  int later_devices;  // after the run
};

LevelOptions OptionsOf(const PipedreamRequest& request) {
  const Machines& machines = request.machines;
  // Machines of one device form a single level.  Several plans may be equally
  // good, and a flat cluster must get the same answer however it is written.
  const bool flat = machines.levels() == 1 || machines.sizes[0] == 1;
  LevelOptions options;
  options.row = {
      flat ? machines.bytes_per_second.back() : machines.bytes_per_second[0],
      flat ? machines.devices() : machines.sizes[0], request.replicas,
      request.count_transfers, machines.memory_bytes};
  options.machines = flat ? 1 : machines.sizes[1];
  options.bytes_per_second = machines.bytes_per_second.back();
  return options;
}

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
      BytesTextOfSum(StateBytes(space, space.last)), ", ",
      Counted(machines.devices(), "device"),
      machines.devices() == 1 ? " holds" : " hold", " at most ",
      BytesTextOfSum(MostHeldBytes(memory, 0, machines.devices())),
      ", as stages keep a version for each mini-batch on its way; the hardest "
      "to place, ",
      node, ", needs ", BytesTextOfSum(bytes), " of ", BytesTextOfSum(memory),
      " for each; use a smaller mini-batch or larger devices");
}

// Appends the nodes of (first, last], each after those that it needs.
LayerRange Append(const StateSpace& space, int first, int last,
                  std::vector<int>& order) {
  std::vector<int> nodes = space.NodesBetween(first, last);
  std::sort(nodes.begin(), nodes.end(), [&](int a, int b) {
    return space.node_rank[a] < space.node_rank[b];
  });
  const int begin = static_cast<int>(order.size());
  order.insert(order.end(), nodes.begin(), nodes.end());
  return {begin, static_cast<int>(order.size())};
}

// Computes the formula again for the final stage, in the released order of
// operations, because the running sums of the search round differently.
void PutSeconds(const StateSpace& space, const LevelOptions& options,
                const PipedreamRun& run, const RowStage& placed,
                PipedreamStage& stage) {
  const double bandwidth = options.row.bytes_per_second;
  const int m = placed.replicas;
  const double between =
      RunSyncSeconds(options, space, run.first, run.last, run.machines);
  stage.one_device_seconds =
      space.seconds[placed.last] - space.seconds[placed.first];
  const double sync = 4.0 * (m - 1) *
                      (space.parameter_bytes[placed.last] -
                       space.parameter_bytes[placed.first]) /
                      (bandwidth * m);
  stage.seconds =
      ((stage.one_device_seconds + sync) / m + between) / run.machines;
  if (!options.row.count_transfers) return;
  const auto boundary = [&](int state, double bytes_per_second, int replicas) {
    return state == space.last ? 0
                               : 2.0 * space.boundary_bytes[state] /
                                     (bytes_per_second * replicas);
  };
  if (placed.first != run.first) {
    const double inner = std::max(boundary(placed.first, bandwidth, m),
                                  boundary(placed.last, bandwidth, m));
    stage.transfer_seconds = (inner + between) / run.machines;
  }
  if (run.first == 0) return;
  for (const int end : {run.first, run.last}) {
    if (end != (end == run.first ? placed.first : placed.last)) continue;
    stage.transfer_seconds =
        std::max(stage.transfer_seconds,
                 boundary(end, options.bytes_per_second, run.machines));
  }
}

PipedreamStage StageOf(const StateSpace& space, const LevelOptions& options,
                       const Seat& seat, const RowStage& placed,
                       int first_device) {
  PipedreamStage stage;
  stage.machines = seat.run->machines;
  for (int machine = 0; machine < stage.machines; ++machine) {
    const int base = (seat.first_machine + machine) * options.row.devices;
    for (int i = 0; i < placed.replicas; ++i) {
      stage.devices.push_back(base + first_device + i);
    }
  }
  stage.versions = VersionsOf({stage.machines, seat.later_devices},
                              placed.replicas, placed.rest_devices);
  stage.memory_bytes =
      (StateBytes(space, placed.last) - StateBytes(space, placed.first)) *
      static_cast<double>(stage.versions);
  PutSeconds(space, options, *seat.run, placed, stage);
  return stage;
}

void AddRun(const StateSpace& space, const LevelOptions& options,
            const Seat& seat, PipedreamAnswer& answer) {
  int first_device = 0;
  for (const RowStage& placed : seat.run->stages) {
    PipedreamStage stage = StageOf(space, options, seat, placed, first_device);
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
  double seconds = space.seconds[space.last];
  int within = 1;
  for (int level = 0; level < machines.levels(); ++level) {
    const int size = machines.sizes[level];
    const double sync = 4.0 * (size - 1) * space.parameter_bytes[space.last] /
                        (machines.bytes_per_second[level] * size) / within;
    seconds = (seconds + sync) / size;
    within = size;
  }
  return seconds;
}

std::string ShapeOf(const std::vector<PipedreamStage>& stages) {
  return absl::StrJoin(stages, "-",
                       [](std::string* text, const PipedreamStage& stage) {
                         absl::StrAppend(text, stage.devices.size());
                       });
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
                         const LevelOptions& options,
                         const LevelAnswer& solved) {
  PipedreamAnswer answer;
  int machines = 0;
  for (const PipedreamRun& run : solved.runs) machines += run.machines;
  int first_machine = 0;
  for (const PipedreamRun& run : solved.runs) {
    machines -= run.machines;
    AddRun(space, options,
           {&run, first_machine, machines * options.row.devices}, answer);
    first_machine += run.machines;
  }
  answer.one_machine_seconds = space.seconds[space.last];
  answer.lower_bound_seconds =
      answer.one_machine_seconds / request.machines.devices();
  if (answer.bottleneck_seconds > 0) {
    answer.speed_up = answer.one_machine_seconds / answer.bottleneck_seconds;
  }
  answer.data_parallel_seconds = DataParallelSeconds(space, request.machines);
  answer.shape = ShapeOf(answer.stages);
  return answer;
}

}  // namespace

absl::StatusOr<PipedreamAnswer> PlanPipedream(const GraphProfile& graph,
                                              const StateSpace& space,
                                              const PipedreamRequest& request) {
  PACELINE_RETURN_IF_ERROR(CheckRequest(request));
  const LevelOptions options = OptionsOf(request);
  const LevelAnswer solved = PipedreamLevels(space, options).Solve();
  if (solved.runs.empty()) return NothingFits(graph, space, request.machines);
  PipedreamAnswer answer = AnswerOf(space, request, options, solved);
  answer.why = WhyOf(graph, request, answer);
  return answer;
}

}  // namespace paceline
