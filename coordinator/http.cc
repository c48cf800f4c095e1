#include "coordinator/http.h"

#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {
namespace {

constexpr absl::Duration kAnswerPatience = absl::Seconds(2);

HttpAnswer Plain(int status, std::string text) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::move(text);
  return answer;
}

// Names and addresses were checked at registration: no quotes, no controls.
std::string Target(const std::string& address, bool tls, const std::string& job,
                   const std::string& instance) {
  return absl::StrCat(R"({"targets":[")", address, R"("],"labels":{"job":")",
                      job, R"(","instance":")", instance,
                      tls ? R"(","__scheme__":"https)" : "", R"("}})");
}

// Blocks up to kAnswerPatience; empty when the loop does not answer.
absl::StatusOr<v1::ListWorkersResponse> AskWorkers(Coordinator& coordinator) {
  // Shared with the answer, which may come after this has given up.
  using Answer = absl::StatusOr<v1::ListWorkersResponse>;
  const auto promise = std::make_shared<std::promise<Answer>>();
  auto future = promise->get_future();
  coordinator.ListWorkers(
      [promise](auto workers) { promise->set_value(std::move(workers)); });
  if (future.wait_for(absl::ToChronoMilliseconds(kAnswerPatience)) !=
      std::future_status::ready) {
    return absl::DeadlineExceededError("the coordinator's loop is stuck");
  }
  return future.get();
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
               MetricsRegistry& registry, const Readiness& readiness,
               std::function<std::string()> own_http_address, bool own_tls) {
  server.Get("/metrics", [&registry] {
    return HttpAnswer{200, "text/plain; version=0.0.4; charset=utf-8",
                      registry.Text()};
  });
  const auto if_it_answers = [&coordinator](std::string text) {
    return coordinator.Answers(kAnswerPatience)
               ? Plain(200, std::move(text))
               : Plain(503, "the coordinator's loop does not answer\n");
  };
  server.Get("/healthz", [if_it_answers] { return if_it_answers("ok\n"); });
  server.Get("/readyz", [&coordinator, &readiness, if_it_answers] {
    if (!readiness.serving) return Plain(503, "not serving gRPC yet\n");
    if (!coordinator.StoreWorks()) {
      return Plain(503, "the store refuses writes\n");
    }
    return if_it_answers("ready\n");
  });
  server.Get("/sd", [&coordinator, own = std::move(own_http_address), own_tls] {
    const absl::StatusOr<v1::ListWorkersResponse> workers =
        AskWorkers(coordinator);
    if (!workers.ok()) {
      return Plain(503, std::string(workers.status().message()));
    }
    return HttpAnswer{200, "application/json",
                      ServiceDiscoveryJson({workers->workers().begin(),
                                            workers->workers().end()},
                                           own(), own_tls)};
  });
}

}  // namespace paceline
