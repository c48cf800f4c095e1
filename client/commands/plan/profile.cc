#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/plan/plan.h"
#include "client/files/plan_file.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/job/job_check.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "core/rpc/convert/job_convert.h"

namespace paceline {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(100);
constexpr absl::Duration kPollPeriod = absl::Milliseconds(200);

// "1.25 +- 0.02": milliseconds of one micro-batch.
std::string Milliseconds(const MeasuredSeconds& seconds) {
  return absl::StrFormat("%.3f +- %.3f", seconds.wall * 1e3,
                         seconds.spread * 1e3);
}

std::string LayersTable(const DeviceProfile& profile) {
  Table table({"layer", "kind", ">forward ms", ">backward ms", ">output",
               ">parameters", ">kept"});
  MeasuredSeconds forward, backward;
  int64_t parameter_bytes = 0, kept_bytes = 0;
  for (const LayerMeasurement& layer : profile.layers) {
    table.AddRow(layer.name, layer.kind, Milliseconds(layer.forward),
                 Milliseconds(layer.backward), HumanBytes(layer.output_bytes),
                 HumanBytes(layer.parameter_bytes),
                 HumanBytes(layer.kept_bytes));
    forward.wall += layer.forward.wall;
    backward.wall += layer.backward.wall;
    parameter_bytes += layer.parameter_bytes;
    kept_bytes += layer.kept_bytes;
  }
  table.AddRow("all", "", absl::StrFormat("%.3f", forward.wall * 1e3),
               absl::StrFormat("%.3f", backward.wall * 1e3), "",
               HumanBytes(parameter_bytes), HumanBytes(kept_bytes));
  return table.Render();
}

// A worker sees that it is stopped, not by whom.
std::string BusyShareText(const DeviceProfile& profile) {
  std::string text =
      absl::StrFormat("%.0f %% of a core", profile.cpu_share * 100);
  if (profile.quota_period_seconds > 0) {
    absl::StrAppend(&text, ", stopped every ",
                    HumanSeconds(profile.quota_period_seconds),
                    ": by a quota, or by what else this machine does; plans "
                    "take it as lasting, so without a quota measure again when "
                    "the machine is quiet");
  }
  return text;
}

std::string RenderProfile(const DeviceProfile& profile) {
  const ProfileKey& key = profile.key;
  return absl::StrCat(
      Printable(key.device), ": ", Printable(key.model), ", ",
      Counted(key.micro_batch, "sample"), " a micro-batch, ",
      Printable(key.dtype), ", ", Counted(key.threads, "thread"), ", ",
      Printable(profile.cpu_capability), ", median of ",
      Counted(profile.runs, "run"), "\n", LayersTable(profile), "\n",
      RenderFacts(
          {{"cpu", profile.cpu_model},
           {"a busy thread gets", BusyShareText(profile)},
           {"a frame costs",
            absl::StrFormat("%.1f us and %.3f us a KiB, at each end",
                            profile.frame_seconds * 1e6,
                            profile.frame_seconds_per_byte * 1024 * 1e6)},
           {"a gate report costs",
            absl::StrFormat("%.1f us", profile.gate_seconds * 1e6)}}));
}

std::string CpuText(double seconds_per_byte) {
  return seconds_per_byte > 0
             ? absl::StrFormat("%.2f", seconds_per_byte * 1024 * 1e6)
             : "";
}

std::string LinksTable(const std::vector<LinkMeasurement>& links) {
  Table table(
      {"from", "to", ">MB/s", ">latency us", ">us/KiB sent", ">received"});
  for (const LinkMeasurement& link : links) {
    table.AddRow(link.from, link.to,
                 absl::StrFormat("%.1f", link.bytes_per_second / 1e6),
                 absl::StrFormat("%.1f", link.latency_seconds * 1e6),
                 CpuText(link.send_cpu_seconds_per_byte),
                 CpuText(link.receive_cpu_seconds_per_byte));
  }
  return table.Render();
}

std::string RenderProfiles(const ProfileProgress& progress) {
  std::vector<std::string> parts;
  absl::c_transform(progress.profiles, std::back_inserter(parts),
                    RenderProfile);
  if (!progress.links.empty()) parts.push_back(LinksTable(progress.links));
  return absl::StrJoin(parts, "\n");
}

std::string WaitingText(const ProfileProgress& progress) {
  const size_t done =
      progress.profiles.size() + progress.links.size() + progress.failed.size();
  return Printable(
      absl::StrCat(done, " done, ", progress.waiting.size(),
                   " to go: ", absl::StrJoin(progress.waiting, "; ")));
}

absl::StatusOr<v1::StartProfileResponse> Start(ControlClient& client,
                                               const JobSpec& spec,
                                               const ProfileOptions& options) {
  v1::StartProfileRequest request;
  *request.mutable_spec() = ToProto(spec);
  request.mutable_workers()->Add(options.workers.begin(),
                                 options.workers.end());
  if (options.links.has_value()) {
    request.set_links(*options.links);
  } else if (!options.workers.empty()) {
    request.set_links(options.workers.size() > 1);
  } else {
    PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::Worker> live,
                              LiveWorkers(client));
    request.set_links(live.size() > 1);
  }
  return client.StartProfile(request);
}

// Orders the measurement and shows what is still waited for until its end.
//   progress  as last seen
// Errors: those of WaitUntil() and ControlClient
absl::Status RunProfile(const CommandContext& context, const JobSpec& spec,
                        const ProfileOptions& options,
                        ProfileProgress& progress) {
  PACELINE_ASSIGN_OR_RETURN(const v1::StartProfileResponse started,
                            Start(context.client, spec, options));
  context.console.Note(Printable(absl::StrCat(
      "measuring ", spec.model.name, " in micro-batches of ",
      spec.train.micro_batch, " on ", absl::StrJoin(started.workers(), ", "))));
  size_t last_waiting = 0;
  const auto ask = [&]() -> absl::Status {
    absl::StatusOr<ProfileProgress> now =
        context.client.GetProfile(started.id());
    if (absl::IsNotFound(now.status())) {
      return Aborted(
          "the coordinator has restarted and forgotten this profile; what was "
          "finished is kept: start it again");
    }
    if (now.ok()) progress = *std::move(now);
    return now.status();
  };
  // A redrawn line on a terminal, else one whenever something was finished.
  const auto take = [&] {
    const size_t waiting = progress.waiting.size();
    if (waiting > 0 && context.console.live()) {
      context.console.Redraw(WaitingText(progress));
    } else if (waiting > 0 && waiting != last_waiting) {
      context.console.Note(WaitingText(progress));
    }
    last_waiting = waiting;
    return waiting == 0;
  };
  const absl::Status end = WaitUntil(
      context, {.period = kPollPeriod, .timeout = options.timeout}, ask, take);
  context.console.EndLive();
  return end;
}

}  // namespace

absl::StatusOr<std::vector<v1::Worker>> LiveWorkers(ControlClient& client) {
  PACELINE_ASSIGN_OR_RETURN(const v1::ListWorkersResponse listed,
                            client.ListWorkers());
  std::vector<v1::Worker> live;
  for (const v1::Worker& worker : listed.workers()) {
    const std::string state = StateText(worker);
    if (state == "idle" || state == "busy" || state == "measuring") {
      live.push_back(worker);
    }
  }
  return live;
}

absl::StatusOr<JobSpec> WithMicroBatch(JobSpec spec, int64_t batch,
                                       const std::vector<std::string>& sets) {
  const TrainSpec defaults;
  spec.train.micro_batch = batch;
  if (absl::c_none_of(sets, [](const std::string& set) {
        return absl::StartsWith(set, "train.batch=");
      })) {
    spec.train.batch = batch * (defaults.batch / defaults.micro_batch);
  }
  if (spec.data.name.empty()) {
    spec.data = WithSyntheticData(spec.model, spec.data);
  }
  if (spec.name.empty()) spec.name = spec.model.name;
  std::vector<std::string> wrong;
  for (const SpecProblem& problem : CheckJobSpec(spec)) {
    wrong.push_back(absl::StrCat(problem.path, ": ", problem.why));
  }
  if (wrong.empty()) return spec;
  return InvalidArgument(absl::StrJoin(wrong, "\n"));
}

absl::StatusOr<ProfileProgress> TakeProfile(const CommandContext& context,
                                            const JobSpec& spec,
                                            const ProfileOptions& options) {
  ProfileProgress progress;
  const absl::Status end = RunProfile(context, spec, options, progress);
  if (StoppedWaiting(end)) {
    return absl::Status(end.code(),
                        absl::StrCat(end.message(), " while measuring"));
  }
  PACELINE_RETURN_IF_ERROR(end);
  if (progress.failed.empty()) return progress;
  return FailedPrecondition("not measured: ",
                            absl::StrJoin(progress.failed, "; "));
}

Outcome ProfileCommand(const CommandContext& context, const JobSpec& spec,
                       const ProfileOptions& options) {
  Console& console = context.console;
  ProfileProgress progress;
  const absl::Status end = RunProfile(context, spec, options, progress);
  if (!end.ok() && !StoppedWaiting(end)) return ReportSubmitError(console, end);
  Document document = ProfilesDocument(progress.profiles, progress.links);
  document["failed"] = progress.failed;
  console.Print(RenderProfiles(progress), document);
  console.NoteEach("paceline: not measured: ", progress.failed);
  if (!end.ok()) {
    console.Note(
        end.message(),
        "; the workers go on, and the coordinator keeps what they find");
    return ExitCodeFor(end);
  }
  if (!progress.failed.empty()) return kExitFailed;
  console.Note("next: ", context.program, " plan --model ",
               Printable(spec.model.name), " --batch ", spec.train.micro_batch);
  return kExitOk;
}

namespace {

absl::Status NothingSubmitted() {
  return Cancelled("interrupted; nothing was submitted");
}

// Notes why nobody has looked into the files of `spec`; its weights are looked
// into here, if this machine has them.
absl::Status LookHere(const CommandContext& context, const JobSpec& spec,
                      const LoadModelWeights& load, const std::string& why) {
  bool looked = false;
  const auto model = DescribeModel(spec);
  std::error_code error;
  if (load != nullptr && model.ok() &&
      std::filesystem::is_regular_file(spec.model.weights, error)) {
    WeightsOrigin origin;
    const auto read = load(spec.model, *model, {0, 0}, &origin);
    if (!read.ok() && !absl::IsPermissionDenied(read.status())) {
      return InvalidArgument("model.weights ",
                             Printable(std::string(read.status().message())),
                             ", on this machine; nothing was submitted");
    }
    looked = read.ok();
    context.console.NoteEach("note: ", origin.notes);
  }
  std::vector<std::string> keys;
  for (const auto& [key, path] : FilesOf(spec)) {
    if (path.empty() || (looked && key == "model.weights")) continue;
    keys.push_back(absl::StrCat(key, " ", path));
  }
  if (!keys.empty()) {
    context.console.Note("note: ", Printable(absl::StrJoin(keys, ", ")),
                         ": not looked at, since ", why,
                         "; the job says when it begins what is wrong there");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LookForFiles(const CommandContext& context, const JobSpec& spec,
                          const LoadModelWeights& load,
                          const v1::Inputs& inputs) {
  constexpr absl::Duration kLongest = absl::Seconds(5);
  const auto paths = FilesOf(spec);
  v1::StartProfileRequest request;
  for (const auto& [key, path] : paths) {
    if (!path.empty()) request.add_files(path);
  }
  if (request.files().empty()) return absl::OkStatus();
  *request.mutable_spec() = ToProto(spec);
  *request.mutable_inputs() = inputs;
  const auto asked = context.client.StartProfile(request);
  // The submission will tell what is wrong with the coordinator.
  if (!asked.ok()) return absl::OkStatus();
  if (asked->workers().empty()) {
    return LookHere(context, spec, load,
                    asked->busy().empty() ? "no worker is there"
                                          : "all workers have something to do");
  }
  absl::StatusOr<ProfileProgress> progress;
  const auto ask = [&] {
    progress = context.client.GetProfile(asked->id());
    return progress.status();
  };
  const absl::Status end = WaitUntil(
      context, {.period = kLookPeriod, .timeout = kLongest, .patience = {}},
      ask, [&] { return progress->waiting.empty(); });
  if (absl::IsCancelled(end)) return NothingSubmitted();
  if (!end.ok() && !absl::IsDeadlineExceeded(end)) return absl::OkStatus();
  context.console.NoteEach("note: ", progress->notes);
  for (const auto& [key, path] : paths) {
    std::vector<std::string> lacking;
    std::string why;
    for (const v1::MissingFile& missing : progress->missing) {
      if (missing.path() != path) continue;
      lacking.push_back(missing.worker());
      why = missing.why();
    }
    if (lacking.empty()) continue;
    std::sort(lacking.begin(), lacking.end());
    if (!absl::StrContains(why, path)) why = absl::StrCat(path, ": ", why);
    const std::string text = Printable(
        absl::StrCat(absl::StartsWith(why, key) ? "" : absl::StrCat(key, " "),
                     why, " on ", absl::StrJoin(lacking, ", ")));
    if (std::ssize(lacking) == asked->workers_size() && asked->busy().empty()) {
      return InvalidArgument(
          text, "; nothing was submitted: put it there, or set ", key);
    }
    context.console.Note(
        "note: ", text,
        "; the job fails when one of them must read it: put it there too");
  }
  if (end.ok()) return absl::OkStatus();
  return LookHere(context, spec, load,
                  absl::StrCat("no worker was done with them in ",
                               absl::FormatDuration(kLongest)));
}

absl::Status FillInScript(const CommandContext& context,
                          std::optional<absl::Duration> timeout,
                          JobSpec* spec) {
  if (!NeedsWorker(spec->model)) return absl::OkStatus();
  v1::StartProfileRequest request;
  *request.mutable_spec() = ToProto(*spec);
  PACELINE_ASSIGN_OR_RETURN(const v1::StartProfileResponse started,
                            context.client.StartProfile(request));
  absl::StatusOr<ProfileProgress> progress;
  std::string said;
  const auto ask = [&] {
    progress = context.client.GetProfile(started.id());
    return progress.status();
  };
  const auto take = [&] {
    if (progress->script.has_value() || progress->waiting.empty()) return true;
    const std::string say =
        Printable(absl::StrCat("looking into ", spec->model.file, ": ",
                               absl::StrJoin(progress->waiting, "; ")));
    if (say != said) context.console.Note(said = say);
    return false;
  };
  // A coordinator that restarts forgets what it was asked for.
  const absl::Status end = WaitUntil(
      context, {.period = kLookPeriod, .timeout = timeout, .patience = {}}, ask,
      take);
  if (absl::IsDeadlineExceeded(end)) {
    return DeadlineExceeded("gave up after ", absl::FormatDuration(*timeout),
                            " (--timeout), ", said, "; nothing was submitted");
  }
  if (absl::IsCancelled(end)) return NothingSubmitted();
  PACELINE_RETURN_IF_ERROR(end);
  if (!progress->script.has_value()) {
    return InvalidArgument(Printable(
        absl::StrCat("model.file: ", absl::StrJoin(progress->failed, "; "))));
  }
  spec->model.script = *std::move(progress->script);
  return absl::OkStatus();
}

}  // namespace paceline
