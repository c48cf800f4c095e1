#include "coordinator/watch/page.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/watch/metrics.h"
#include "core/cluster/job_state.h"

namespace paceline {

extern const char* const kPageFrame;

namespace {

// Names from outside must not act as HTML.
std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

using Row = std::vector<std::string>;

std::string Table(const std::string& title, const Row& titles,
                  const std::vector<Row>& rows) {
  const auto line = [](const Row& row, const char* tag) {
    std::string html = "<tr>";
    for (const std::string& cell : row) {
      absl::StrAppend(&html, "<", tag, ">", Escaped(cell), "</", tag, ">");
    }
    return absl::StrCat(html, "</tr>\n");
  };
  std::string html =
      absl::StrCat("<h2>", title, "</h2>\n<table>\n", line(titles, "th"));
  for (const Row& row : rows) absl::StrAppend(&html, line(row, "td"));
  return absl::StrCat(html, "</table>\n");
}

std::string Jobs(const v1::MeshUpdate& mesh) {
  std::vector<Row> rows;
  for (const v1::Job& job : mesh.jobs()) {
    rows.push_back(
        {absl::StrCat(job.id()), job.spec().name(),
         absl::StrCat(JobStateName(static_cast<JobState>(job.state())),
                      job.phase().empty() ? "" : ", ", job.phase()),
         absl::StrCat(job.step(),
                      job.steps() > 0 ? absl::StrCat("/", job.steps()) : ""),
         job.has_accuracy() ? FourDecimals(job.accuracy()) : "",
         job.has_loss() ? FourDecimals(job.loss()) : "", job.why()});
  }
  std::reverse(rows.begin(), rows.end());  // newest first
  return Table("Jobs",
               {"job", "name", "state", "step", "accuracy", "loss", "why"},
               rows);
}

std::string Workers(const v1::MeshUpdate& mesh) {
  std::vector<Row> rows;
  for (const v1::Worker& worker : mesh.workers()) {
    rows.push_back({worker.registration().name(),
                    absl::StrCat(WorkerStateName(worker.state()),
                                 worker.drained() ? ", drained" : ""),
                    worker.job() > 0 ? absl::StrCat(worker.job()) : "",
                    absl::StrJoin(worker.stages(), ", "),
                    worker.registration().address()});
  }
  return Table("Workers", {"worker", "state", "job", "stages", "address"},
               rows);
}

std::string Events(const v1::MeshUpdate& mesh) {
  std::vector<Row> rows;
  for (const v1::JobEvent& event : mesh.events()) {
    rows.push_back({absl::FormatTime("%Y-%m-%d %H:%M:%S UTC",
                                     absl::FromUnixMillis(event.unix_ms()),
                                     absl::UTCTimeZone()),
                    absl::StrCat(event.job()), event.kind(), event.text()});
  }
  std::reverse(rows.begin(), rows.end());
  return Table("Events", {"time", "job", "kind", "what"}, rows);
}

}  // namespace

std::string RenderPage(const v1::MeshUpdate& mesh) {
  return absl::StrReplaceAll(
      kPageFrame,
      {{"<!--mesh-->", absl::StrCat(Jobs(mesh), Workers(mesh), Events(mesh))}});
}

}  // namespace paceline
