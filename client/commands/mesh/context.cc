#include "client/commands/mesh/context.h"

#include <utility>

#include "client/files/settings.h"
#include "client/values/text.h"

namespace paceline {
namespace {

ExitCode ReportDone(Console& console, const absl::Status& done,
                    const std::string& text, const Document& document) {
  if (!done.ok()) return ReportError(console, done);
  console.Print(text, document);
  return kExitOk;
}

}  // namespace

ExitCode ListContextsCommand(Console& console) {
  const std::string current = CurrentContext();
  Table table({"", "name", "coordinator"});
  Document documents = Document::array();
  for (const std::string& name : ContextNames()) {
    const auto context = ReadContext(name);
    const std::string host =
        context.ok() ? context->coordinator.value_or("") : "";
    const std::string error(context.status().message());
    table.AddRow(name == current ? "*" : "", name, context.ok() ? host : error);
    documents.push_back(Document{{"name", name},
                                 {"coordinator", OrNull(host)},
                                 {"current", Document(name == current)},
                                 {"error", OrNull(error)}});
  }
  if (console.table() && documents.empty()) {
    console.Note(
        "no contexts yet; make one with 'paceline context set NAME HOST:PORT'");
  }
  console.PrintList(table.Render(), "contexts", std::move(documents));
  return kExitOk;
}

ExitCode SetContextCommand(Console& console, const std::string& name,
                           const std::string& coordinator) {
  return ReportDone(console, SetContext(name, coordinator),
                    "context " + name + " is " + coordinator +
                        "; next: paceline context use " + name + "\n",
                    Document{{"name", name}, {"coordinator", coordinator}});
}

ExitCode UseContextCommand(Console& console, const std::string& name) {
  return ReportDone(console, UseContext(name),
                    "in use: " + (name.empty() ? "no context" : name) + "\n",
                    Document{{"current", OrNull(name)}});
}

ExitCode DeleteContextCommand(Console& console, const std::string& name) {
  return ReportDone(console, DeleteContext(name),
                    "context " + name + " is deleted\n",
                    Document{{"name", name}, {"deleted", Document(true)}});
}

}  // namespace paceline
