#include "tests/support/mesh.h"

#include <signal.h>

#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "gtest/gtest.h"

namespace paceline {

std::string Program(const std::string& name) {
  return std::string(PACELINE_BIN_DIR) + "/" + name;
}

Mesh::Mesh(int workers, const std::vector<std::string>& more_flags) {
  const std::string ready = folder_ / "ready.json";
  std::vector<std::string> arguments = {Program("paceline"),
                                        "up",
                                        "--workers",
                                        std::to_string(workers),
                                        "--port",
                                        "0",
                                        "--http-port",
                                        "0",
                                        "--state",
                                        folder_ / "state",
                                        "--ready-file",
                                        ready};
  arguments.insert(arguments.end(), more_flags.begin(), more_flags.end());
  up_ = std::make_unique<Child>(arguments);
  const bool started = Eventually(
      [&] { return !ReadWholeFile(ready).empty() || !up_->Running(); },
      std::chrono::seconds(60));
  const nlohmann::json json =
      nlohmann::json::parse(ReadWholeFile(ready), nullptr, false);
  if (!started || json.is_discarded()) {
    ADD_FAILURE() << "the mesh did not start:\n" << up_->errors();
    return;
  }
  coordinator_ = json.value("coordinator", "");
  http_ = json.value("http", "");
}

Mesh::~Mesh() {
  up_->Signal(SIGTERM);
  const Finished finished = up_->Wait(std::chrono::seconds(20));
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
}

Finished Mesh::Run(std::vector<std::string> arguments,
                   std::chrono::seconds longest) const {
  arguments.insert(arguments.begin(), Program("paceline"));
  return RunCommand(arguments, longest,
                    {{{"PACELINE_COORDINATOR", coordinator_}}, "", ""});
}

nlohmann::json Mesh::Json(const std::vector<std::string>& arguments,
                          int expected_exit,
                          std::chrono::seconds longest) const {
  std::vector<std::string> with_format = arguments;
  with_format.insert(with_format.end(), {"-o", "json"});
  const Finished finished = Run(with_format, longest);
  EXPECT_EQ(finished.exit_code, expected_exit) << finished.errors;
  nlohmann::json json = nlohmann::json::parse(finished.output, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << "not JSON: " << finished.output;
  return json;
}

std::string Mesh::Write(const std::string& text,
                        const std::string& name) const {
  WriteWholeFile(folder_ / name, text);
  return folder_ / name;
}

Finished Mesh::TrySubmit(const std::string& file,
                         const std::vector<std::string>& sets,
                         const std::vector<std::string>& flags) const {
  std::vector<std::string> arguments = {"job", "submit", file};
  for (const std::string& set : sets) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return Run(arguments);
}

nlohmann::json Mesh::Submit(const std::string& file,
                            const std::vector<std::string>& sets) const {
  const Finished finished = TrySubmit(file, sets, {"-o", "json"});
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  nlohmann::json job = nlohmann::json::parse(finished.output, nullptr, false);
  EXPECT_EQ(job.value("state", ""), "succeeded") << finished.output;
  return job;
}

std::string Mesh::Detach(const std::string& file,
                         const std::vector<std::string>& sets) const {
  const Finished finished = TrySubmit(file, sets, {"--detach", "-o", "json"});
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  const nlohmann::json job =
      nlohmann::json::parse(finished.output, nullptr, false);
  return std::to_string(job.value("id", int64_t{-1}));
}

nlohmann::json Mesh::Job(const std::string& job) const {
  return Json({"job", "show", job});
}

int64_t Mesh::Step(const std::string& job) const { return Job(job)["step"]; }

bool Mesh::StepPasses(int64_t step, const std::string& job) const {
  return Eventually([&] { return Step(job) > step; });
}

std::string Mesh::Events(const std::string& job) const {
  return Run({"job", "events", job}).output;
}

bool Mesh::EventComes(const std::string& text) const {
  return Eventually([&] { return Events().find(text) != std::string::npos; });
}

std::string Mesh::Export(const std::string& job) const {
  const std::string path = folder_ / "weights.safetensors";
  const Finished finished = Run({"job", "export", job, "-o", path});
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  return path;
}

std::unique_ptr<Child> Mesh::Start(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), Program("paceline"));
  ChildOptions options;
  options.environment["PACELINE_COORDINATOR"] = coordinator_;
  return std::make_unique<Child>(arguments, options);
}

std::vector<nlohmann::json> Mesh::Workers() const {
  const nlohmann::json answer = Json({"node", "list"});
  return answer["workers"].get<std::vector<nlohmann::json>>();
}

pid_t Mesh::pid_of_worker(const std::string& name) const {
  for (const nlohmann::json& worker : Workers()) {
    if (worker["name"] == name) return worker["pid"];
  }
  ADD_FAILURE() << "no worker " << name;
  return -1;
}

pid_t Mesh::pid_of_coordinator() const {
  const std::string up = std::to_string(up_->pid());
  std::istringstream children(
      ReadWholeFile("/proc/" + up + "/task/" + up + "/children"));
  for (pid_t pid = 0; children >> pid;) {
    std::error_code ignored;
    const auto program = std::filesystem::read_symlink(
        "/proc/" + std::to_string(pid) + "/exe", ignored);
    if (program.filename() == "paceline-coordinator") return pid;
  }
  ADD_FAILURE() << "no coordinator";
  return -1;
}

std::string Mesh::log(const std::string& daemon) const {
  return ReadWholeFile(folder_ / ("state/logs/" + daemon + ".log"));
}

std::string Mesh::Get(const std::string& address, const std::string& path) {
  const Finished finished = RunCommand(
      {"curl", "-sS", "http://" + address + path}, std::chrono::seconds(10));
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  return finished.output;
}

}  // namespace paceline
