#include "client/commands/node_commands.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/report.h"

namespace paceline {

ExitCode ListNodesCommand(const CommandContext& context) {
  const auto workers = context.client.ListWorkers();
  if (!workers.ok()) return ReportError(context.console, workers.status());
  if (context.console.table()) {
    context.console.Print(RenderWorkers(*workers));
    if (workers->workers().empty()) {
      context.console.Note(
          "no workers yet; start one with 'paceline-worker --coordinator "
          "HOST:PORT'");
    }
    return kExitOk;
  }
  Document list = Document::array();
  for (const v1::Worker& worker : workers->workers())
    list.push_back(ToDocument(worker));
  context.console.PrintList("workers", std::move(list));
  return kExitOk;
}

ExitCode ShowNodeCommand(const CommandContext& context,
                         const std::string& word) {
  const auto workers = context.client.ListWorkers();
  if (!workers.ok()) return ReportError(context.console, workers.status());
  // A name may look like a number: names go first.
  const v1::Worker* found = nullptr;
  for (const v1::Worker& worker : workers->workers()) {
    if (worker.registration().name() == word) found = &worker;
  }
  for (const v1::Worker& worker : workers->workers()) {
    if (found == nullptr && absl::StrCat(worker.id()) == word) found = &worker;
  }
  if (found == nullptr) {
    const std::string known =
        absl::StrJoin(workers->workers(), ", ",
                      [](std::string* out, const v1::Worker& worker) {
                        absl::StrAppend(out, worker.registration().name());
                      });
    return ReportError(context.console,
                       absl::NotFoundError(absl::StrCat(
                           "no worker '", word, "'; known are: ",
                           known.empty() ? std::string("none") : known)));
  }
  if (context.console.table()) {
    context.console.Print(RenderWorker(*found));
  } else {
    context.console.Print(ToDocument(*found));
  }
  return kExitOk;
}

ExitCode DrainNodeCommand(const CommandContext& context,
                          const std::string& word, bool drain) {
  const auto worker = context.client.DrainWorker(word, drain);
  if (!worker.ok()) return ReportError(context.console, worker.status());
  if (!context.console.table()) {
    context.console.Print(ToDocument(*worker));
    return kExitOk;
  }
  context.console.Print(absl::StrCat(
      "worker ", worker->registration().name(),
      !drain               ? " takes new work again"
      : worker->job() == 0 ? " is drained: it gets nothing new"
                           : absl::StrCat(" is draining: it gets nothing new, "
                                          "and ends its part in job ",
                                          worker->job(), " first"),
      "\n"));
  return kExitOk;
}

ExitCode ForgetNodeCommand(const CommandContext& context,
                           const std::string& word) {
  const auto worker = context.client.ForgetWorker(word);
  if (!worker.ok()) return ReportError(context.console, worker.status());
  if (context.console.table()) {
    context.console.Print(absl::StrCat("worker ", worker->registration().name(),
                                       " is forgotten\n"));
  } else {
    context.console.Print(ToDocument(*worker));
  }
  return kExitOk;
}

}  // namespace paceline
