#include "coordinator/mesh/mesh_measurements.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/jobs/list_page.h"
#include "core/base/errors.h"
#include "core/cluster/registration.h"
#include "core/job/aggregation.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/simulate/estimate.h"
#include "core/simulate/group_step.h"

namespace paceline {
namespace {

// The most workers whose links a person can measure at once: each pair is two
// tasks.
constexpr size_t kMostLinked = 90;
// In one answer.
constexpr int64_t kMostMeasurements = 2000;

// The lowest capability of `workers`, which a job over them would use.
std::string LowestCapability(const std::string& precision,
                             const std::vector<std::string>& workers,
                             const std::map<WorkerId, Member>& members) {
  std::string lowest = HighestUseful(precision);
  for (const auto& [id, member] : members) {
    const v1::Registration& r = member.registration;
    if (absl::c_linear_search(workers, r.name()) &&
        CapabilityRank(r.cpu_capability()) < CapabilityRank(lowest)) {
      lowest = r.cpu_capability();
    }
  }
  return lowest;
}

// names: at least one.
std::string FirstIdle(const MeshState& mesh,
                      const std::vector<std::string>& names) {
  for (const MeasureWorker& worker : MeasureWorkers(mesh)) {
    if (worker.live && !worker.busy &&
        absl::c_linear_search(names, worker.name)) {
      return worker.name;
    }
  }
  return names.front();
}

v1::StartProfileResponse LookForFiles(MeshState& mesh,
                                      const v1::StartProfileRequest& request) {
  v1::StartProfileResponse ticket;
  for (const MeasureWorker& worker : MeasureWorkers(mesh)) {
    if (!worker.live) continue;
    const bool busy = worker.busy || mesh.measures.Holds(worker.name);
    (busy ? ticket.add_busy() : ticket.add_workers())->assign(worker.name);
  }
  ticket.set_id(mesh.measures.RequestFiles(
      request, {ticket.workers().begin(), ticket.workers().end()}));
  return ticket;
}

}  // namespace

std::vector<MeasureWorker> MeasureWorkers(const MeshState& mesh) {
  std::vector<MeasureWorker> workers;
  for (const auto& [id, member] : mesh.membership.members()) {
    const JobEntry* const job = mesh.JobOf(id);
    workers.push_back({member.registration.name(),
                       member.registration.address(),
                       member.state == MemberState::kLive, job != nullptr,
                       job != nullptr && job->IsPaused()});
  }
  return workers;
}

std::optional<v1::RunEstimate> EstimateOf(
    const MeshState& mesh, const JobSpec& spec, const ModelDescription& model,
    const std::vector<StageOfPlan>& stages,
    const std::map<WorkerId, double>& slowness) {
  std::vector<InputWorker> workers;
  std::vector<MemberInput> members;
  std::vector<EstimateStage> placed;
  std::map<WorkerId, int> index;
  for (const StageOfPlan& stage : stages) {
    const Member* const member = mesh.membership.Find(stage.worker);
    if (member == nullptr) return std::nullopt;
    const auto [found, is_new] =
        index.emplace(stage.worker, static_cast<int>(workers.size()));
    if (is_new) {
      workers.push_back({member->registration.name(),
                         member->registration.machine_id(),
                         member->registration.memory_bytes()});
      const auto slow = slowness.find(stage.worker);
      if (slow != slowness.end()) workers.back().slowness = slow->second;
    }
    placed.push_back({stage.layers, found->second, stage.share});
    members.push_back({workers[found->second], stage.share,
                       HostOf(member->registration),
                       member->registration.cores()});
  }
  const absl::StatusOr<RunEstimate> estimate =
      HasRounds(spec)
          ? EstimateGroup(spec, model, members, mesh.measured)
          : EstimateRun(spec, model, placed, workers, mesh.measured);
  if (!estimate.ok()) return std::nullopt;
  return Given<v1::RunEstimate>(*estimate);
}

absl::StatusOr<v1::StartProfileResponse> StartMeasuring(
    MeshState& mesh, const v1::StartProfileRequest& request) {
  if (!request.files().empty()) {
    PACELINE_RETURN_IF_ERROR(
        CheckSize("files", request.files_size(), kMaxFilesLookedFor));
    if (request.has_spec()) {
      PACELINE_RETURN_IF_ERROR(CheckSpec(FromProto(request.spec())));
    }
    return LookForFiles(mesh, request);
  }
  const JobSpec spec = FromProto(request.spec());
  PACELINE_RETURN_IF_ERROR(CheckSpec(spec));
  const bool describe = NeedsWorker(spec.model);
  if (!describe) PACELINE_RETURN_IF_ERROR(Describe(spec).status());
  std::vector<std::string> live = mesh.LiveNames();
  if (live.empty()) {
    return FailedPrecondition(
        "no worker is attached that could measure: start one with "
        "paceline-worker, or paceline up");
  }
  if (!spec.model.file.empty() && request.workers().empty()) {
    for (const auto& [id, member] : mesh.membership.members()) {
      if (member.registration.no_scripts()) {
        std::erase(live, member.registration.name());
      }
    }
    if (live.empty()) {
      return FailedPrecondition(
          "model.file is a script, and all workers that are attached forbid "
          "scripts (--no-scripts)");
    }
  }
  std::vector<std::string> workers(request.workers().begin(),
                                   request.workers().end());
  if (workers.empty()) workers = live;
  absl::c_sort(workers);
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  for (const std::string& worker : workers) {
    if (absl::c_linear_search(live, worker)) continue;
    return NotFound("no live worker ", worker,
                    "; there are: ", absl::StrJoin(live, ", "));
  }
  if (request.links() && workers.size() > kMostLinked) {
    return InvalidArgument(
        "links are measured between at most ", kMostLinked,
        " workers at a time, not ", workers.size(),
        ": name some with --workers, which measure their links to "
        "one another");
  }
  // All workers read the same file, so one description will do.
  if (describe) workers = {FirstIdle(mesh, workers)};
  v1::StartProfileResponse ticket;
  ticket.set_id(mesh.measures.Request(
      spec,
      spec.cpu_capability == "auto"
          ? LowestCapability(spec.precision, workers, mesh.membership.members())
          : spec.cpu_capability,
      workers, request.links() && !describe));
  ticket.mutable_workers()->Add(workers.begin(), workers.end());
  return ticket;
}

void TakeMeasurement(MeshState& mesh, const Member& member,
                     const v1::Measurement& measurement) {
  const std::string& name = member.registration.name();
  const std::optional<v1::Measurement> kept =
      mesh.measures.OnMeasurement(name, measurement);
  if (!kept.has_value()) return;
  // A worker may only report its own profile.
  if (kept->has_profile() && kept->profile().device() == name) {
    const DeviceProfile profile = *FromProto(kept->profile());
    mesh.measured.Put(profile);
    mesh.actions.writes.measurements.Put(profile);
  }
  for (const v1::LinkMeasurement& each : kept->links()) {
    const LinkMeasurement link = *FromProto(each);
    const auto known = mesh.measured.links.find({link.from, link.to});
    if (known != mesh.measured.links.end() && known->second == link) continue;
    mesh.measured.Put(link);
    mesh.actions.writes.measurements.Put(link);
  }
}

void RedialAll(MeshState& mesh) {
  for (const auto& [ends, link] : mesh.measured.links) {
    if (!link.error.empty()) mesh.measures.Redial(link.from, link.to);
  }
}

absl::StatusOr<v1::ListMeasurementsResponse> PageOfMeasurements(
    const MeshState& mesh, const v1::ListMeasurementsRequest& request) {
  PACELINE_ASSIGN_OR_RETURN(const int64_t skip,
                            ListPage::Parse(request.page_token()));
  v1::ListMeasurementsResponse view;
  ListPage page(skip, request.page_size(), kMostMeasurements);
  std::vector<const DeviceProfile*> profiles;
  for (const auto& [key, profile] : mesh.measured.profiles) {
    if (request.model().empty() || key.model == request.model()) {
      profiles.push_back(&profile);
    }
  }
  page.Add(profiles, *view.mutable_profiles(),
           [](const DeviceProfile* each) { return ToProto(*each); });
  page.Add(mesh.measured.links, *view.mutable_links(),
           [](const auto& each) { return ToProto(each.second); });
  view.set_next_page_token(page.next());
  return view;
}

}  // namespace paceline
