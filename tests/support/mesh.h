// A mesh of real processes, as `paceline up` starts it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/child.h"

namespace paceline {

std::string Program(const std::string& name);  // in the build's bin folder

// Thread-compatible.  Ends the mesh when dropped.
class Mesh {
 public:
  // Waits until all workers have registered; fails the test when they do not.
  explicit Mesh(int workers, const std::vector<std::string>& more_flags = {});
  ~Mesh();

  // Runs `paceline ARGUMENTS...` against this mesh.
  Finished Run(std::vector<std::string> arguments,
               std::chrono::seconds longest = std::chrono::seconds(240)) const;
  // As Run with -o json; fails the test unless stdout is one JSON document.
  nlohmann::json Json(
      const std::vector<std::string>& arguments, int expected_exit = 0,
      std::chrono::seconds longest = std::chrono::seconds(240)) const;
  // Writes a file into the mesh's folder; returns its path.
  std::string Write(const std::string& text,
                    const std::string& name = "job.yaml") const;
  // `paceline job submit FILE --set SET ... FLAGS ...`.
  Finished TrySubmit(const std::string& file,
                     const std::vector<std::string>& sets = {},
                     const std::vector<std::string>& flags = {}) const;
  // Waits for the job's end and returns its document; fails the test unless it
  // succeeds.
  nlohmann::json Submit(const std::string& file,
                        const std::vector<std::string>& sets = {}) const;
  // Returns the job's number while it runs.
  std::string Detach(const std::string& file,
                     const std::vector<std::string>& sets = {}) const;
  // The number, or "last", names the job in all of these.
  nlohmann::json Job(const std::string& job) const;
  int64_t Step(const std::string& job) const;
  bool StepPasses(int64_t step, const std::string& job = "1") const;  // waits
  std::string Events(const std::string& job = "1") const;
  bool EventComes(const std::string& text) const;             // to job 1; waits
  std::string Export(const std::string& job = "last") const;  // the file's path
  // A client that goes on in the background.
  std::unique_ptr<Child> Start(std::vector<std::string> arguments) const;

  const std::string& coordinator() const { return coordinator_; }
  const std::string& http() const { return http_; }
  std::vector<nlohmann::json> Workers() const;  // of `node list`
  pid_t pid_of_worker(const std::string& name) const;
  pid_t pid_of_coordinator() const;
  std::string folder() const { return folder_.path(); }
  std::string log(const std::string& daemon) const;
  Child& up() { return *up_; }

  // GET http://ADDRESS/PATH by curl; the body, or "" with a test failure.
  static std::string Get(const std::string& address, const std::string& path);

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Child> up_;
  std::string coordinator_;
  std::string http_;
};

}  // namespace paceline
