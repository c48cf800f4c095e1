#include "client/render/mesh_view.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/base/text.h"

namespace paceline {
namespace {

constexpr size_t kMostEvents = 200;

bool IsGone(const v1::Worker& worker) {
  return worker.state() == v1::WORKER_STATE_LOST ||
         worker.state() == v1::WORKER_STATE_SUSPECT;
}

// Rows of a table and which of them somebody should look at.
struct Part {
  explicit Part(std::vector<std::string> titles) : table(std::move(titles)) {}

  void Add(std::vector<std::string> cells, bool is_bad) {
    table.AddRow(std::move(cells));
    bad.push_back(is_bad);
  }

  Table table;
  std::vector<bool> bad;
};

// "6 busy, 1 lost".
std::string CountText(const std::map<std::string, int64_t>& counts) {
  if (counts.empty()) return "none";
  return Joined(counts, ", ", [](const auto& count) {
    return absl::StrCat(count.second, " ", count.first);
  });
}

// The phase of a job that runs, else its state.
std::string PhaseOf(const v1::Job& job) {
  return job.phase().empty() ? JobStateName(job.state()) : job.phase();
}

// Why it is as it is, with the phases of a recovery that is going on.
std::string WhyText(const v1::Job& job) {
  std::string text = job.why();
  if (text.empty()) return text;
  for (const auto& [phase, seconds] :
       {std::pair{"detect", job.recovering().seconds().detect()},
        {"leave", job.recovering().seconds().leave()},
        {"choose", job.recovering().seconds().choose()},
        {"fetch", job.recovering().seconds().fetch()},
        {"build", job.recovering().seconds().build()}}) {
    if (seconds > 0) {
      absl::StrAppend(&text, "; ", phase, " ", HumanSeconds(seconds));
    }
  }
  return text;
}

Part JobsPart(const MeshView& mesh) {
  std::vector<const v1::Job*> jobs;
  for (const auto& [id, job] : mesh.jobs) jobs.push_back(&job);
  // Running ones, waiting ones, then those that have ended; the newest first.
  std::sort(jobs.begin(), jobs.end(), [](const auto* a, const auto* b) {
    const auto rank = [](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_RUNNING  ? 0
             : job.state() == v1::JOB_STATE_QUEUED ? 1
                                                   : 2;
    };
    return std::tuple(rank(*a), -a->id()) < std::tuple(rank(*b), -b->id());
  });
  Part part({">job", "name", "state", ">step", ">loss", ">samples/s", "why"});
  for (const v1::Job* const job : jobs) {
    const bool runs = job->state() == v1::JOB_STATE_RUNNING;
    part.Add({absl::StrCat(job->id()), job->spec().name(), PhaseOf(*job),
              job->steps() > 0 ? absl::StrCat(job->step(), "/", job->steps())
                               : absl::StrCat(job->step()),
              job->has_loss() ? HumanLoss(job->loss()) : "",
              runs && job->samples_per_second() > 0
                  ? HumanRate(job->samples_per_second())
                  : "",
              WhyText(*job)},
             job->state() == v1::JOB_STATE_FAILED);
  }
  return part;
}

// The link over which the worker sends most: "to w2 1.2 MiB/s 1%" of what the
// link can carry.
std::string LinkText(const v1::Job& job, const std::string& worker) {
  const v1::JobLink* most = nullptr;
  for (const v1::JobLink& link : job.links()) {
    if (link.from() == worker &&
        (most == nullptr ||
         link.sent_bytes_per_second() > most->sent_bytes_per_second())) {
      most = &link;
    }
  }
  if (most == nullptr) return "";
  const double capacity = most->capacity_bytes_per_second();
  return absl::StrCat(
      "to ", most->to(), " ", HumanBytes(most->sent_bytes_per_second()), "/s",
      capacity > 0
          ? absl::StrFormat(" %.0f%%",
                            100 * most->sent_bytes_per_second() / capacity)
          : "");
}

// The stages, or the step of a member of a round group.
std::string PlaceText(const v1::Job& job, const v1::JobWorker& part) {
  if (part.has_member()) {
    return absl::StrCat("step ", part.member().next(),
                        part.member().listens()     ? " joins"
                        : job.server() == part.id() ? " serves"
                                                    : "");
  }
  return StageNumbers(part);
}

// The time of a micro-batch on the worker's first stage.
std::string TimeText(const v1::Job& job, int64_t worker) {
  for (const v1::StageDrift& drift : job.drift()) {
    if (drift.worker_id() == worker && drift.measured_seconds() > 0) {
      return HumanSeconds(drift.measured_seconds());
    }
  }
  return "";
}

std::vector<std::string> WorkerRow(const MeshView& mesh,
                                   const v1::Worker& worker) {
  std::vector<std::string> row = {
      worker.registration().name(), StateText(worker),
      worker.job() > 0 ? absl::StrCat(worker.job()) : ""};
  row.resize(9);
  const auto job = mesh.jobs.find(worker.job());
  if (job == mesh.jobs.end()) return row;
  for (const v1::JobWorker& part : job->second.workers()) {
    if (part.id() != worker.id()) continue;
    row[3] = PlaceText(job->second, part);
    const v1::TimeSplit& time = part.run().seconds();
    const double rest =
        time.wall() - time.forward() - time.backward() - time.receive_wait();
    const double parts[] = {time.forward(), time.backward(),
                            time.receive_wait(), std::max(0.0, rest)};
    for (int i = 0; i < 4 && time.wall() > 0; ++i) {
      row[4 + i] = absl::StrFormat("%.0f", 100 * parts[i] / time.wall());
    }
    row[8] = absl::StrCat(TimeText(job->second, worker.id()), "  ",
                          LinkText(job->second, part.name()));
  }
  return row;
}

Part WorkersPart(const MeshView& mesh) {
  std::vector<const v1::Worker*> workers;
  for (const auto& [id, worker] : mesh.workers) workers.push_back(&worker);
  // Those that are gone first, then by job and stage.
  std::sort(workers.begin(), workers.end(), [](const auto* a, const auto* b) {
    const auto key = [](const v1::Worker& worker) {
      return std::tuple(!IsGone(worker), worker.job() == 0, worker.job(),
                        worker.stages().empty() ? 0 : worker.stages(0),
                        worker.id());
    };
    return key(*a) < key(*b);
  });
  Part part({"worker", "state", ">job", "stage", ">fwd%", ">bwd%", ">wait%",
             ">rest%", "a micro-batch; sends"});
  for (const v1::Worker* const worker : workers) {
    part.Add(WorkerRow(mesh, *worker), IsGone(*worker));
  }
  return part;
}

// The first `most` rows; where there are more, the last line says how many.
void AddPart(const Part& part, int most, std::vector<ScreenLine>& lines) {
  const int rows = static_cast<int>(part.bad.size());
  if (most <= 0 || rows == 0) return;
  const int shown = rows > most ? most - 1 : rows;
  const std::vector<std::string> text =
      absl::StrSplit(part.table.Render(), '\n');
  lines.push_back({""});
  for (int i = 0; i <= shown; ++i) {
    lines.push_back({text[i], i > 0 && part.bad[i - 1]});
  }
  if (shown < rows) lines.push_back({absl::StrCat(rows - shown, " more")});
}

}  // namespace

void MeshView::Merge(const v1::MeshUpdate& update) {
  if (update.whole()) {
    workers.clear();
    jobs.clear();
    events.clear();
  }
  // Updates do not repeat a worker that is gone, so its silence is counted on
  // here: by nothing where the coordinator's clock was set back.
  const double passed = 1e-3 * static_cast<double>(std::max<int64_t>(
                                   0, update.unix_ms() - unix_ms));
  for (auto& [id, worker] : workers) {
    worker.set_last_heard_seconds(
        IsGone(worker) ? worker.last_heard_seconds() + passed : 0);
  }
  unix_ms = update.unix_ms();
  for (const v1::Worker& worker : update.workers()) {
    workers[worker.id()] = worker;
  }
  for (const int64_t id : update.forgotten_workers()) workers.erase(id);
  for (const v1::Job& job : update.jobs()) {
    jobs[job.id()] = job;
    jobs[job.id()].clear_curve();
  }
  for (const int64_t id : update.forgotten_jobs()) jobs.erase(id);
  job_counts = {update.job_counts().begin(), update.job_counts().end()};
  events.insert(events.end(), update.events().begin(), update.events().end());
  while (events.size() > kMostEvents) events.pop_front();
}

v1::ListWorkersResponse MeshView::Workers() const {
  v1::ListWorkersResponse list;
  for (const auto& [id, worker] : workers) *list.add_workers() = worker;
  return list;
}

v1::ListJobsResponse MeshView::Jobs() const {
  v1::ListJobsResponse list;
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
    *list.add_jobs() = job->second;
  }
  return list;
}

std::string RenderMeshEvent(const v1::JobEvent& event) {
  return absl::StrCat(ClockText(event.unix_ms()), "  job ", event.job(), "  ",
                      Printable(event.kind()), "  ", Printable(event.text()));
}

std::vector<ScreenLine> RenderTop(const MeshView& mesh, const std::string& note,
                                  ScreenSize size) {
  constexpr int kAround = 7;  // the first line, titles, blank lines
  const Part jobs = JobsPart(mesh);
  const Part workers = WorkersPart(mesh);
  // A quarter for the jobs, at least a quarter for events.
  const int left = size.rows > 0 ? size.rows - kAround : 1 << 20;
  const int events =
      std::min<int>(std::size(mesh.events), std::max(3, left / 4));
  const int most_jobs =
      std::min<int>(std::size(jobs.bad), std::max(2, left / 4));
  const int most_workers = std::max(
      1, std::min<int>(std::size(workers.bad), left - most_jobs - events));

  std::map<std::string, int64_t> states;
  for (const auto& [id, worker] : mesh.workers) ++states[StateText(worker)];
  std::vector<ScreenLine> lines = {
      {absl::StrCat(ClockText(mesh.unix_ms), "  workers: ", CountText(states),
                    "; jobs: ", CountText(mesh.job_counts))}};
  if (!note.empty()) lines[0] = {note, true};
  AddPart(jobs, most_jobs, lines);
  AddPart(workers, most_workers, lines);
  lines.push_back({""});
  const int room =
      size.rows > 0 ? size.rows - static_cast<int>(lines.size()) : 10;
  const int shown = std::clamp<int>(room, 0, std::size(mesh.events));
  for (auto event = mesh.events.end() - shown; event != mesh.events.end();
       ++event) {
    lines.push_back({RenderMeshEvent(*event)});
  }
  if (size.rows > 0 && std::ssize(lines) > size.rows) lines.resize(size.rows);
  for (ScreenLine& line : lines) {
    if (size.columns > 0) line.text = CutToWidth(line.text, size.columns);
  }
  return lines;
}

}  // namespace paceline
