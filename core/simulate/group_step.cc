#include "core/simulate/group_step.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/job/aggregation.h"
#include "core/plan/memory.h"
#include "core/round/view.h"

namespace paceline {
namespace {

// Seconds of CPU at full speed, fitted to the steps that ddp_beside.py measures
// on its bed and on loopback; November 2026.
//
// A byte of the gradient: a member checks and hashes its own part.
constexpr double kOwnSecondsPerByte = 0.06e-9;
// A byte of a part or result: a server checks and sums it, a holder checks it.
constexpr double kTakeSecondsPerByte = 0.07e-9;
// The same byte out of the memory of another member on this host: reading it,
// and how long it takes, since one thread reads one piece after the other.
constexpr double kLentSecondsPerByte = 0.1e-9;
constexpr double kLentWallSecondsPerByte = 0.7e-9;
// A byte of a gradient that travels coded: into the code, and back.
constexpr double kCodedSecondsPerByte = 0.1e-9;
// A step, beside all that is counted: data, records, threads that wake up.
constexpr double kStepSeconds = 1.9e-3;
// Pieces that travel in a row cost as much as a message.
constexpr double kRowBytes = 1 << 20;

// A phase asks so much of a member.
struct Load {
  double cpu_seconds = 0;
  double out_seconds = 0;  // of its port
  double in_seconds = 0;
};

class Phases {
 public:
  Phases(const GroupProblem& problem, int shards)
      : problem_(problem), members_(problem.members.size()), shards_(shards) {}

  // With step t's servers.
  GroupStep At(size_t t) const;

 private:
  using Loads = std::vector<Load>;

  double Cores(const Loads& loads) const;
  double Ports(const Loads& loads) const;
  double PortsAfter(double computed, const Loads& loads) const;
  // `bytes` go from one member to another; their message goes with the last of
  // them.
  void Send(size_t from, size_t to, double bytes, Loads& loads) const;
  size_t ServerOf(size_t t, int shard) const {
    return (problem_.central ? static_cast<size_t>(shard)
                             : t + static_cast<size_t>(shard)) %
           members_;
  }

  const GroupProblem& problem_;
  const size_t members_;
  const int shards_;
};

// Returns when the CPU work of all members is done: each member has its share
// of a core, and the members of a host share its cores.
double Phases::Cores(const Loads& loads) const {
  double seconds = 0;
  std::vector<double> hosts(problem_.host_cores.size());
  for (size_t m = 0; m < members_; ++m) {
    const MemberCost& member = problem_.members[m];
    seconds = std::max(seconds, loads[m].cpu_seconds / member.cpu_share);
    hosts[member.host] += loads[m].cpu_seconds;
  }
  for (size_t h = 0; h < hosts.size(); ++h) {
    if (problem_.host_cores[h] <= 0) continue;
    seconds = std::max(seconds, hosts[h] / problem_.host_cores[h]);
  }
  return seconds;
}

double Phases::Ports(const Loads& loads) const {
  double seconds = 0;
  for (const Load& load : loads) {
    seconds = std::max({seconds, load.out_seconds, load.in_seconds});
  }
  return seconds;
}

// Returns when all ports are done.  They have nothing to do before the last
// backward.
//   computed  when all members have computed
double Phases::PortsAfter(double computed, const Loads& loads) const {
  double seconds = 0;
  for (size_t m = 0; m < members_; ++m) {
    const MemberCost& member = problem_.members[m];
    const double port = std::max(loads[m].out_seconds, loads[m].in_seconds);
    if (port <= 0) continue;
    const double lead =
        member.compute_seconds > 0
            ? computed * member.last_backward_seconds / member.compute_seconds
            : 0;
    seconds = std::max(seconds, computed - std::min(lead, port) + port);
  }
  return seconds;
}

void Phases::Send(size_t from, size_t to, double bytes, Loads& loads) const {
  const MemberCost& sender = problem_.members[from];
  const MemberCost& receiver = problem_.members[to];
  const double messages = std::max(1.0, std::ceil(bytes / kRowBytes));
  loads[from].cpu_seconds += messages * sender.message_seconds;
  loads[to].cpu_seconds +=
      messages * receiver.message_seconds + bytes * kTakeSecondsPerByte;
  if (sender.host == receiver.host) {
    loads[to].cpu_seconds += bytes * kLentSecondsPerByte;
    loads[to].in_seconds += bytes * kLentWallSecondsPerByte;
    return;
  }
  loads[from].cpu_seconds += bytes * sender.byte_seconds;
  loads[to].cpu_seconds += bytes * receiver.byte_seconds;
  const double seconds = bytes / problem_.links[from][to].bytes_per_second;
  loads[from].out_seconds += seconds;
  loads[to].in_seconds += seconds;
}

GroupStep Phases::At(size_t t) const {
  Loads compute(members_), parts(members_), results(members_), commit(members_),
      apply(members_);
  const double bytes = problem_.gradient_bytes / shards_;
  double latency = 0;
  for (size_t m = 0; m < members_; ++m) {
    for (int shard = 0; shard < shards_; ++shard) {
      const size_t server = ServerOf(t, shard);
      if (server == m) continue;
      Send(m, server, bytes, parts);
      Send(server, m, bytes, results);
    }
    const size_t committer = ServerOf(t, 0);
    if (committer != m) {
      Send(m, committer, 0, commit);  // its hold
      Send(committer, m, 0, commit);
      latency = std::max(latency, problem_.links[m][committer].latency_seconds);
    }
    compute[m].cpu_seconds = problem_.members[m].compute_seconds;
    apply[m].cpu_seconds = problem_.members[m].apply_seconds;
  }
  GroupStep step;
  for (size_t m = 0; m < members_; ++m) {
    parts[m].cpu_seconds +=
        compute[m].cpu_seconds + problem_.gradient_bytes * kOwnSecondsPerByte;
  }
  step.compute =
      std::max(Cores(parts), PortsAfter(Cores(compute), parts)) + latency;
  step.results = std::max(Cores(results), Ports(results)) + latency;
  step.commit = Cores(commit) + 2 * latency;
  step.apply = Cores(apply);
  return step;
}

}  // namespace

GroupStep PredictGroupStep(const GroupProblem& problem, int shards) {
  const Phases phases(problem, shards);
  GroupStep mean;
  const size_t places = problem.central ? 1 : problem.members.size();
  for (size_t t = 0; t < places; ++t) {
    const GroupStep step = phases.At(t);
    mean.compute += step.compute / static_cast<double>(places);
    mean.results += step.results / static_cast<double>(places);
    mean.commit += step.commit / static_cast<double>(places);
    mean.apply += step.apply / static_cast<double>(places);
  }
  return mean;
}

namespace {

struct Choice {
  int shards = 1;
  GroupStep step;
  std::string why;  // empty: the job has chosen
};

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.3g ms", 1e3 * seconds);
}

// Whether all members have the memory to serve in this number of shards.
bool HasRoom(JobSpec spec, const ModelDescription& model,
             const std::vector<MemberInput>& members, int shards) {
  spec.aggregation.shards = shards;
  const int64_t need = MemberBytes(spec, model, std::ssize(members));
  return std::ranges::all_of(members, [need](const MemberInput& member) {
    const int64_t has = member.worker.memory_bytes;
    return has <= 0 || need <= has;
  });
}

// Tries 1, 2, 4, ... and the most, which takes the least memory and was found
// to fit when the job was placed.
Choice ChooseShards(const JobSpec& spec, const ModelDescription& model,
                    const std::vector<MemberInput>& members,
                    const GroupProblem& problem) {
  const int most = ShardsOf(spec, model, std::ssize(members));
  Choice choice = {most, PredictGroupStep(problem, most), ""};
  if (spec.aggregation.shards > 0) return choice;
  if (most == 1) {
    choice.why = members.size() == 1
                     ? "there is one member"
                     : "the rule, the mode or the gradient allows no more";
    return choice;
  }
  std::vector<Choice> tried;
  std::vector<std::string> cramped;
  for (int shards = 1; shards < most; shards *= 2) {
    if (HasRoom(spec, model, members, shards)) {
      tried.push_back({shards, PredictGroupStep(problem, shards), ""});
    } else {
      cramped.push_back(absl::StrCat(shards));
    }
  }
  tried.push_back(choice);
  choice = *std::ranges::min_element(
      tried, {}, [](const Choice& each) { return each.step.seconds(); });
  choice.why = absl::StrCat("a step is predicted to take ",
                            Milliseconds(choice.step.seconds()));
  for (const Choice& other : tried) {
    if (other.shards == choice.shards) continue;
    absl::StrAppend(&choice.why, ", ", Milliseconds(other.step.seconds()),
                    " with ", other.shards);
  }
  if (!cramped.empty()) {
    absl::StrAppend(&choice.why, "; no memory for ",
                    absl::StrJoin(cramped, ", "));
  }
  return choice;
}

// Returns the share of a core that each member has alone.  Members of one host
// were measured side by side: the host gives no more than they had together.
std::vector<double> CpuSharesOf(const PlanInputs& inputs,
                                const std::vector<int>& host_of,
                                std::vector<double>& host_cores) {
  std::vector<double> sums(host_cores.size());
  std::vector<int> members(host_cores.size());
  for (size_t m = 0; m < host_of.size(); ++m) {
    sums[host_of[m]] += inputs.facts[m].cpu_share;
    ++members[host_of[m]];
  }
  std::vector<double> shares;
  for (size_t m = 0; m < host_of.size(); ++m) {
    const int host = host_of[m];
    double& cores = host_cores[host];
    if (members[host] > 1 && cores > 0) cores = std::min(cores, sums[host]);
    shares.push_back(members[host] > 1 ? std::min(1.0, sums[host])
                                       : inputs.facts[m].cpu_share);
  }
  return shares;
}

View ViewOf(const std::vector<MemberInput>& members) {
  View view;
  for (size_t m = 0; m < members.size(); ++m) {
    view.members.push_back(
        {.id = {WorkerId{static_cast<int64_t>(m) + 1}, Incarnation{1}},
         .share = members[m].share});
  }
  return view;
}

GroupProblem ProblemOf(const JobSpec& spec, const ModelDescription& model,
                       const std::vector<MemberInput>& members,
                       const PlanInputs& inputs) {
  GroupProblem problem;
  problem.links = inputs.problem.links;
  problem.central = spec.aggregation.mode == "central";
  problem.gradient_bytes = static_cast<double>(
      RoundBytesOf(spec, model, std::ssize(members)).gradient);
  const double coding_seconds =
      spec.aggregation.codec == "fp32"
          ? 0
          : kCodedSecondsPerByte * problem.gradient_bytes;
  std::map<std::string, int> hosts;
  std::vector<int> host_of;
  for (const MemberInput& member : members) {
    const auto [host, is_new] =
        hosts.emplace(member.host, static_cast<int>(hosts.size()));
    if (is_new) problem.host_cores.push_back(member.cores);
    host_of.push_back(host->second);
  }
  const std::vector<double> shares =
      CpuSharesOf(inputs, host_of, problem.host_cores);
  const View view = ViewOf(members);
  for (size_t m = 0; m < members.size(); ++m) {
    const DeviceFacts& facts = inputs.facts[m];
    const Device& device = inputs.problem.devices[m];
    const auto sum = [](const std::vector<double>& seconds) {
      return std::accumulate(seconds.begin(), seconds.end(), 0.0);
    };
    const auto own = static_cast<double>(
        MicroBatchesOf(view, 0, view.members[m].id,
                       static_cast<int>(inputs.problem.micro_batches))
            .size());
    const double backward = sum(facts.backward_seconds);
    problem.members.push_back(
        {.host = host_of[m],
         .cpu_share = shares[m],
         .compute_seconds =
             own * (sum(facts.forward_seconds) + backward) + coding_seconds,
         .last_backward_seconds = own > 0 ? backward + coding_seconds : 0,
         .apply_seconds =
             sum(facts.update_seconds) + kStepSeconds + coding_seconds,
         .message_seconds = device.frame_seconds * facts.cpu_share,
         .byte_seconds = device.frame_seconds_per_byte * facts.cpu_share});
  }
  return problem;
}

}  // namespace

absl::StatusOr<RunEstimate> EstimateGroup(
    const JobSpec& spec, const ModelDescription& model,
    const std::vector<MemberInput>& members, const Measurements& measurements) {
  std::vector<InputWorker> workers;
  for (const MemberInput& member : members) workers.push_back(member.worker);
  PlanInputs inputs = MakePlanInputs(spec, model, workers, measurements);
  const GroupProblem problem = ProblemOf(spec, model, members, inputs);
  Choice choice = ChooseShards(spec, model, members, problem);
  RunEstimate estimate;
  estimate.step_seconds = choice.step.seconds();
  estimate.samples_per_second =
      static_cast<double>(spec.train.batch) / estimate.step_seconds;
  double computes = 0, slowest = 0;
  std::string pace;  // whose compute takes longest
  for (size_t m = 0; m < members.size(); ++m) {
    const MemberCost& member = problem.members[m];
    const double own = member.compute_seconds / member.cpu_share;
    computes += own;
    if (own > slowest) pace = members[m].worker.name;
    slowest = std::max(slowest, own);
    estimate.layer_seconds.push_back(
        LayerSeconds(inputs.problem, {0, static_cast<int>(model.layers.size())},
                     static_cast<int>(m)));
    estimate.stage_seconds.push_back(estimate.layer_seconds.back());
  }
  estimate.bubble_share =
      std::max(0.0, 1 - computes / static_cast<double>(members.size()) /
                            estimate.step_seconds);
  const double rest = estimate.step_seconds - slowest;
  estimate.bound =
      slowest > rest
          ? absl::StrFormat(
                "%s sets the pace: it computes %.4g of %.4g s a step", pace,
                slowest, estimate.step_seconds)
          : absl::StrFormat("the exchange sets the pace: %.4g of %.4g s a step",
                            rest, estimate.step_seconds);
  estimate.source = std::move(inputs.source);
  estimate.measured = inputs.measured;
  estimate.shards = choice.shards;
  estimate.shards_why = std::move(choice.why);
  return estimate;
}

}  // namespace paceline
