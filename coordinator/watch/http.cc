#include "coordinator/watch/http.h"

#include <deque>
#include <future>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/watch/mesh_watch.h"
#include "coordinator/watch/metrics.h"
#include "core/base/errors.h"
#include "core/cluster/job_state.h"
#include "core/os/thread.h"

namespace paceline {

namespace {

constexpr absl::Duration kAnswerPatience = absl::Seconds(2);

// Registration has checked names and addresses: they hold no quotes and no
// control characters.
std::string Target(const std::string& address, bool tls, const std::string& job,
                   const std::string& instance) {
  return absl::StrCat(R"({"targets":[")", address, R"("],"labels":{"job":")",
                      job, R"(","instance":")", instance,
                      tls ? R"(","__scheme__":"https)" : "", R"("}})");
}

// Blocks up to kAnswerPatience.  Errors: DeadlineExceeded  no answer came.
absl::StatusOr<v1::ListWorkersResponse> AskWorkers(
    Coordinator& coordinator, const v1::ListWorkersRequest& request) {
  // Shared with the answer, which may come after the timeout.
  using Answer = absl::StatusOr<v1::ListWorkersResponse>;
  const auto promise = std::make_shared<std::promise<Answer>>();
  auto future = promise->get_future();
  coordinator.ListWorkers(request, [promise](auto workers) {
    promise->set_value(std::move(workers));
  });
  if (future.wait_for(absl::ToChronoMilliseconds(kAnswerPatience)) !=
      std::future_status::ready) {
    return DeadlineExceeded("the coordinator's loop is stuck");
  }
  return future.get();
}

// A client of the page.  Thread-safe.
class PageWatcher final : public MeshWatcher {
 public:
  bool Take(const SharedUpdate& update) override {
    SteadyLock lock(&mutex_);
    ended_ = ended_ || unread_.size() == kMostUnread;
    if (!ended_) unread_.push_back(update);
    return !ended_;
  }
  void End(const absl::Status& /*why*/) override { Leave(); }
  void Leave() {
    SteadyLock lock(&mutex_);
    ended_ = true;
  }

  // Null: none came in time, or the watch has ended.
  SharedUpdate Next(absl::Duration patience) {
    SteadyLock lock(&mutex_);
    const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return ended_ || !unread_.empty();
    };
    mutex_.AwaitFor(absl::Condition(&due), patience);
    if (ended_ || unread_.empty()) return nullptr;
    SharedUpdate next = std::move(unread_.front());
    unread_.pop_front();
    return next;
  }
  bool ended() const {
    SteadyLock lock(&mutex_);
    return ended_;
  }

 private:
  mutable SteadyMutex mutex_;
  std::deque<SharedUpdate> unread_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class PageEvents final : public EventSource {
 public:
  explicit PageEvents(Coordinator& coordinator) {
    coordinator.WatchMesh(watcher_);
  }
  ~PageEvents() override { watcher_->Leave(); }

  const std::string* Next() override {
    update_ = watcher_->Next(absl::Seconds(1));
    if (update_ != nullptr) return &update_->Json();
    return watcher_->ended() ? nullptr : &nothing_;
  }

 private:
  // Shared with the coordinator's list.
  const std::shared_ptr<PageWatcher> watcher_ = std::make_shared<PageWatcher>();
  SharedUpdate update_;
  const std::string nothing_;
};

HttpAnswer Page(Coordinator& coordinator) {
  const auto watcher = std::make_shared<PageWatcher>();  // shared too
  coordinator.WatchMesh(watcher);
  const SharedUpdate mesh = watcher->Next(kAnswerPatience);
  watcher->Leave();
  if (mesh == nullptr) {
    return {503, "the coordinator's loop does not answer: reload\n"};
  }
  return {200, RenderPage(mesh->message()), "text/html; charset=utf-8"};
}

}  // namespace

std::string ServiceDiscoveryJson(const std::vector<v1::Worker>& workers,
                                 const std::string& own_http_address,
                                 bool own_tls) {
  std::vector<std::string> targets = {
      Target(own_http_address, own_tls, "paceline-coordinator", "coordinator")};
  for (const v1::Worker& worker : workers) {
    const v1::Registration& registration = worker.registration();
    if (worker.state() == v1::WORKER_STATE_LOST ||
        worker.state() == v1::WORKER_STATE_STOPPED) {
      continue;
    }
    if (registration.http_address().empty()) continue;
    targets.push_back(Target(registration.http_address(),
                             registration.http_tls(), "paceline-worker",
                             registration.name()));
  }
  return absl::StrCat("[", absl::StrJoin(targets, ","), "]");
}

void AddRoutes(HttpServer& server, Coordinator& coordinator,
               MetricsRegistry& registry, const std::atomic<bool>& serves,
               std::function<std::string()> own_http_address, bool own_tls) {
  server.Get("/", [&coordinator] { return Page(coordinator); });
  server.Get("/page.js", [] {
    return HttpAnswer{200, kPageScript, "text/javascript; charset=utf-8"};
  });
  server.Get("/page.css", [] {
    return HttpAnswer{200, kPageStyle, "text/css; charset=utf-8"};
  });
  server.GetEvents("/watch", [&coordinator] {
    return std::make_unique<PageEvents>(coordinator);
  });
  server.Get("/metrics", [&registry] {
    return HttpAnswer{200, registry.Text(),
                      "text/plain; version=0.0.4; charset=utf-8"};
  });
  const auto if_it_answers = [&coordinator](std::string text) {
    return coordinator.Summary(kAnswerPatience).has_value()
               ? HttpAnswer{200, std::move(text)}
               : HttpAnswer{503, "the coordinator's loop does not answer\n"};
  };
  server.Get("/healthz", [if_it_answers] { return if_it_answers("ok\n"); });
  server.Get("/readyz", [&coordinator, &serves, if_it_answers] {
    if (!serves) return HttpAnswer{503, "not serving gRPC yet\n"};
    if (!coordinator.StoreWorks()) {
      return HttpAnswer{503, "the store refuses writes\n"};
    }
    return if_it_answers("ready\n");
  });
  server.Get("/sd", [&coordinator, own = std::move(own_http_address), own_tls] {
    std::vector<v1::Worker> workers;
    v1::ListWorkersRequest request;
    do {
      const auto page = AskWorkers(coordinator, request);
      if (!page.ok()) {
        return HttpAnswer{503, std::string(page.status().message())};
      }
      workers.insert(workers.end(), page->workers().begin(),
                     page->workers().end());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return HttpAnswer{200, ServiceDiscoveryJson(workers, own(), own_tls),
                      "application/json"};
  });
}

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
         absl::StrCat(JobStateName(job.state()),
                      job.phase().empty() ? "" : ", ", job.phase()),
         absl::StrCat(job.step(),
                      job.steps() > 0 ? absl::StrCat("/", job.steps()) : ""),
         job.has_accuracy() ? FourDecimals(job.accuracy()) : "",
         job.has_loss() ? FourDecimals(job.loss()) : "", job.why()});
  }
  absl::c_reverse(rows);  // newest first
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
  absl::c_reverse(rows);
  return Table("Events", {"time", "job", "kind", "what"}, rows);
}

}  // namespace

std::string RenderPage(const v1::MeshUpdate& mesh) {
  return absl::StrReplaceAll(
      kPageFrame,
      {{"<!--mesh-->", absl::StrCat(Jobs(mesh), Workers(mesh), Events(mesh))}});
}

}  // namespace paceline
