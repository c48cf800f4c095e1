// Real processes for tests: started, listened to, killed on purpose.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace paceline {

struct ChildOptions {
  std::map<std::string, std::string> environment = {};  // on top of our own
  // stdout goes there; empty: it is kept, see Child::output().
  std::string output_file = {};
  std::string directory = {};  // to run in; empty: ours
};

// What a command left behind.
struct Finished {
  int exit_code = -1;  // 128 + signal when it was killed; -1: timed out
  std::string output;  // stdout
  std::string errors;  // stderr
  std::chrono::duration<double> seconds{0};
};

// A process with its stdout and stderr in files.  Killed with SIGKILL when
// dropped while still running.  Thread-compatible.
class Child {
 public:
  // arguments[0] is the program's path.
  explicit Child(const std::vector<std::string>& arguments,
                 const ChildOptions& options = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  bool Running();
  void Signal(int signal);
  // Waits for the end, at most `longest`, then kills.
  Finished Wait(std::chrono::seconds longest);

  // What was printed so far.
  std::string output() const;
  std::string errors() const;

 private:
  bool Reap(bool block);

  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point over_;
  std::string output_path_;
  std::string errors_path_;
};

// Runs a command to its end.
Finished RunCommand(const std::vector<std::string>& arguments,
                    std::chrono::seconds longest = std::chrono::seconds(120),
                    const ChildOptions& options = {});

// Asks every 10 ms until `condition` holds; false after `longest`.
template <typename Condition>
bool Eventually(Condition condition,
                std::chrono::seconds longest = std::chrono::seconds(30));

std::string ReadWholeFile(const std::string& path);  // "" when there is none
void WriteWholeFile(const std::string& path, const std::string& text);

// A folder of its own for a test, removed with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

// A port of 127.0.0.1 that was free a moment ago, for programs that cannot
// choose one.
std::string FreePort();

void PauseBetweenLooks();  // 10 ms

template <typename Condition>
bool Eventually(Condition condition, std::chrono::seconds longest) {
  const auto give_up = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    PauseBetweenLooks();
  }
  return true;
}

}  // namespace paceline
