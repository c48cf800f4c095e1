#include "client/commands/profile.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/command.h"
#include "client/files/profile_file.h"
#include "client/render/report.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "core/base/status_macros.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "core/rpc/convert.h"

namespace paceline {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(100);
constexpr Table::Align kRight = Table::Align::kRight;

// "1.25 +- 0.02": milliseconds of one micro-batch.
std::string Milliseconds(const MeasuredSeconds& seconds) {
  return absl::StrFormat("%.3f +- %.3f", seconds.wall * 1e3,
                         seconds.spread * 1e3);
}

std::string Bytes(int64_t bytes) {
  return HumanBytes(static_cast<double>(bytes));
}

std::string LayersTable(const DeviceProfile& profile) {
  Table table({{"layer"},
               {"kind"},
               {"forward ms", kRight},
               {"backward ms", kRight},
               {"output", kRight},
               {"parameters", kRight},
               {"kept", kRight}});
  MeasuredSeconds forward, backward;
  int64_t parameter_bytes = 0, kept_bytes = 0;
  for (const LayerMeasurement& layer : profile.layers) {
    table.AddRow({layer.name, layer.kind, Milliseconds(layer.forward),
                  Milliseconds(layer.backward), Bytes(layer.output_bytes),
                  Bytes(layer.parameter_bytes), Bytes(layer.kept_bytes)});
    forward.wall += layer.forward.wall;
    backward.wall += layer.backward.wall;
    parameter_bytes += layer.parameter_bytes;
    kept_bytes += layer.kept_bytes;
  }
  table.AddRow({"all", "", absl::StrFormat("%.3f", forward.wall * 1e3),
                absl::StrFormat("%.3f", backward.wall * 1e3), "",
                Bytes(parameter_bytes), Bytes(kept_bytes)});
  return table.Render();
}

// A worker sees that it is stopped, not by whom.
std::string ShareText(const DeviceProfile& profile) {
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
  std::string text = absl::StrCat(
      Printable(key.device), ": ", Printable(key.model), ", ", key.micro_batch,
      key.micro_batch == 1 ? " sample" : " samples", " a micro-batch, ",
      Printable(key.dtype), ", ", key.threads,
      key.threads == 1 ? " thread, " : " threads, ",
      Printable(profile.cpu_capability), ", median of ", profile.runs,
      " runs\n", LayersTable(profile));
  absl::StrAppend(
      &text, "\n",
      RenderFacts(
          {{"cpu", profile.cpu_model},
           {"a busy thread gets", ShareText(profile)},
           {"a frame costs",
            absl::StrFormat("%.1f us and %.3f us a KiB, at each end",
                            profile.frame_seconds * 1e6,
                            profile.frame_seconds_per_byte * 1024 * 1e6)},
           {"a gate report costs",
            absl::StrFormat("%.1f us", profile.gate_seconds * 1e6)}}));
  return text;
}

std::string CpuText(double seconds_per_byte) {
  return seconds_per_byte > 0
             ? absl::StrFormat("%.2f", seconds_per_byte * 1024 * 1e6)
             : "";
}

std::string LinksTable(const std::vector<LinkMeasurement>& links) {
  Table table({{"from"},
               {"to"},
               {"MB/s", kRight},
               {"latency us", kRight},
               {"us/KiB sent", kRight},
               {"received", kRight}});
  for (const LinkMeasurement& link : links) {
    table.AddRow({link.from, link.to,
                  absl::StrFormat("%.1f", link.bytes_per_second / 1e6),
                  absl::StrFormat("%.1f", link.latency_seconds * 1e6),
                  CpuText(link.send_cpu_seconds_per_byte),
                  CpuText(link.receive_cpu_seconds_per_byte)});
  }
  return table.Render();
}

Document ToDocument(const ProfileProgress& progress) {
  Document document = ProfilesDocument(progress.profiles, progress.links);
  document["failed"] = progress.failed;
  return document;
}

std::string RenderProfiles(const ProfileProgress& progress) {
  std::string text;
  for (const DeviceProfile& profile : progress.profiles) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", RenderProfile(profile));
  }
  if (!progress.links.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n",
                    LinksTable(progress.links));
  }
  return text;
}

constexpr absl::Duration kPollPeriod = absl::Milliseconds(200);

struct Watched {
  ProfileProgress progress;
  ExitCode end = kExitOk;  // or kExitTimedOut, kExitInterrupted
};

// Both directions of a link are one thing to measure, as in `waiting`.
size_t CountDone(const ProfileProgress& progress) {
  std::set<std::pair<std::string, std::string>> links;
  for (const LinkMeasurement& link : progress.links) {
    links.insert(std::minmax(link.from, link.to));
  }
  return progress.profiles.size() + links.size() + progress.failed.size();
}

// Says what is waited for: a redrawn line on a terminal, else a line whenever
// something was finished.
class WaitingLine {
 public:
  explicit WaitingLine(Console& console) : console_(console) {}

  void Show(const ProfileProgress& progress) {
    if (progress.waiting.empty()) return;
    const std::string text = Printable(
        absl::StrCat(CountDone(progress), " done, ", progress.waiting.size(),
                     " to go: ", absl::StrJoin(progress.waiting, "; ")));
    if (console_.live()) {
      console_.Redraw(text);
    } else if (progress.waiting.size() != last_waiting_) {
      console_.Note(text);
    }
    last_waiting_ = progress.waiting.size();
  }

 private:
  Console& console_;
  size_t last_waiting_ = 0;
};

absl::StatusOr<Watched> Watch(const CommandContext& context,
                              MeasureClient& measure, int64_t id,
                              std::optional<absl::Duration> timeout) {
  const Instant begin = context.clock.Now();
  Patience patience;
  WaitingLine line(context.console);
  Watched watched;
  for (;;) {
    absl::StatusOr<ProfileProgress> progress = measure.GetProfile(id);
    if (progress.ok()) {
      if (const std::string say = patience.OnAnswer(); !say.empty()) {
        context.console.Note(say);
      }
      watched.progress = *std::move(progress);
      if (watched.progress.waiting.empty()) return watched;
      line.Show(watched.progress);
    } else if (absl::IsNotFound(progress.status())) {
      return absl::AbortedError(
          "the coordinator has restarted and forgotten this profile; what was "
          "finished is kept: start it again");
    } else {
      const auto verdict =
          patience.OnError(progress.status(), context.clock.Now());
      if (!verdict.retry) return progress.status();
      if (!verdict.say.empty()) context.console.Note(verdict.say);
    }
    absl::Duration pause = kPollPeriod;
    if (timeout.has_value()) {
      const absl::Duration left = *timeout - (context.clock.Now() - begin);
      if (left <= absl::ZeroDuration()) {
        watched.end = kExitTimedOut;
        return watched;
      }
      pause = std::min(pause, left);
    }
    if (context.pauser.Sleep(pause)) {
      watched.end = kExitInterrupted;
      return watched;
    }
  }
}

absl::StatusOr<v1::StartProfileResponse> Start(MeasureClient& measure,
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
                              LiveWorkers(measure));
    request.set_links(live.size() > 1);
  }
  return measure.StartProfile(request);
}

void PrintProgress(Console& console, const ProfileProgress& progress) {
  if (console.table()) {
    console.Print(RenderProfiles(progress));
  } else {
    console.Print(ToDocument(progress));
  }
}

bool GivesBatch(const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    if (absl::StartsWith(set, "train.batch=")) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<v1::Worker>> LiveWorkers(MeasureClient& measure) {
  PACELINE_ASSIGN_OR_RETURN(const v1::ListWorkersResponse listed,
                            measure.ListWorkers());
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
  if (!GivesBatch(sets)) {
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
  return absl::InvalidArgumentError(absl::StrJoin(wrong, "\n"));
}

absl::StatusOr<ProfileProgress> TakeProfile(const CommandContext& context,
                                            MeasureClient& measure,
                                            const JobSpec& spec,
                                            const ProfileOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(const v1::StartProfileResponse started,
                            Start(measure, spec, options));
  context.console.Note(Printable(absl::StrCat(
      "measuring ", spec.model.name, " in micro-batches of ",
      spec.train.micro_batch, " on ", absl::StrJoin(started.workers(), ", "))));
  absl::StatusOr<Watched> watched =
      Watch(context, measure, started.id(), options.timeout);
  context.console.EndLive();
  PACELINE_RETURN_IF_ERROR(watched.status());
  if (watched->end == kExitTimedOut) {
    return absl::DeadlineExceededError("timed out while measuring");
  }
  if (watched->end == kExitInterrupted) {
    return absl::CancelledError("interrupted while measuring");
  }
  if (!watched->progress.failed.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "not measured: ", absl::StrJoin(watched->progress.failed, "; ")));
  }
  return std::move(watched->progress);
}

absl::Status CheckProfileOptions(const ProfileOptions& options) {
  if (!options.model.empty() || !options.job_file.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "what is to be profiled? Name a model (--model MODEL --batch B) or a job "
      "(-f FILE)");
}

ExitCode ProfileCommand(const CommandContext& context, MeasureClient& measure,
                        const JobSpec& spec, const ProfileOptions& options) {
  Console& console = context.console;
  const auto started = Start(measure, spec, options);
  if (!started.ok()) {
    ReportError(console, started.status());
    return SubmitExitCodeFor(started.status());
  }
  console.Note(
      Printable(absl::StrCat("measuring ", spec.model.name,
                             " in micro-batches of ", spec.train.micro_batch,
                             " on ", absl::StrJoin(started->workers(), ", "))));
  const auto watched = Watch(context, measure, started->id(), options.timeout);
  console.EndLive();
  if (!watched.ok()) return ReportError(console, watched.status());
  PrintProgress(console, watched->progress);
  for (const std::string& failed : watched->progress.failed) {
    console.Note(absl::StrCat("paceline: not measured: ", Printable(failed)));
  }
  if (watched->end != kExitOk) {
    console.Note(absl::StrCat(
        watched->end == kExitTimedOut ? "timed out" : "interrupted",
        "; the workers go on, and what they find is kept"));
    return watched->end;
  }
  if (!watched->progress.failed.empty()) return kExitFailed;
  console.Note(absl::StrCat("next: ", context.program, " plan --model ",
                            Printable(spec.model.name), " --batch ",
                            spec.train.micro_batch));
  return kExitOk;
}

absl::Status FillInScript(Console& console, Pauser& pauser, const Clock& clock,
                          std::optional<absl::Duration> timeout,
                          MeasureClient& measure, JobSpec* spec) {
  if (!NeedsWorker(spec->model)) return absl::OkStatus();
  v1::StartProfileRequest request;
  *request.mutable_spec() = ToProto(*spec);
  PACELINE_ASSIGN_OR_RETURN(const v1::StartProfileResponse started,
                            measure.StartProfile(request));
  const Instant begin = clock.Now();
  std::string said;
  for (;;) {
    PACELINE_ASSIGN_OR_RETURN(ProfileProgress progress,
                              measure.GetProfile(started.id()));
    if (progress.script.has_value()) {
      spec->model.script = *std::move(progress.script);
      return absl::OkStatus();
    }
    if (progress.waiting.empty()) {
      return absl::InvalidArgumentError(Printable(
          absl::StrCat("model.file: ", absl::StrJoin(progress.failed, "; "))));
    }
    const std::string say =
        Printable(absl::StrCat("looking into ", spec->model.file, ": ",
                               absl::StrJoin(progress.waiting, "; ")));
    if (say != said) console.Note(said = say);
    if (timeout.has_value() && clock.Now() - begin >= *timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("gave up after ", absl::FormatDuration(*timeout),
                       " (--timeout), ", say, "; nothing was submitted"));
    }
    if (pauser.Sleep(kLookPeriod)) {
      return absl::CancelledError("interrupted; nothing was submitted");
    }
  }
}

}  // namespace paceline
