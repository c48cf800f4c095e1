#include "tests/support/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace paceline {
namespace {

std::string MakeTemporaryFile() {
  std::string path =
      (std::filesystem::temp_directory_path() / "paceline-test-XXXXXX")
          .string();
  const int fd = mkstemp(path.data());
  if (fd >= 0) close(fd);
  return path;
}

// In the child, between fork and exec.
[[noreturn]] void Execute(const std::vector<std::string>& arguments,
                          const ChildOptions& options,
                          const std::string& output_path,
                          const std::string& errors_path) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int output =
      open(output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int errors =
      open(errors_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int input = open("/dev/null", O_RDONLY);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) {
    _exit(126);
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments,
             const ChildOptions& options)
    : began_(std::chrono::steady_clock::now()),
      output_path_(options.output_file.empty() ? MakeTemporaryFile()
                                               : options.output_file),
      errors_path_(MakeTemporaryFile()) {
  pid_ = fork();
  if (pid_ == 0) Execute(arguments, options, output_path_, errors_path_);
}

Child::~Child() {
  if (Running()) {
    Signal(SIGKILL);
    Reap(/*block=*/true);
  }
  std::filesystem::remove(errors_path_);
  std::filesystem::remove(output_path_);
}

bool Child::Reap(bool block) {
  if (ended_) return true;
  if (waitpid(pid_, &status_, block ? 0 : WNOHANG) != pid_) return false;
  ended_ = true;
  over_ = std::chrono::steady_clock::now();
  return true;
}

bool Child::Running() { return !Reap(/*block=*/false); }

void Child::Signal(int signal) {
  if (!ended_) kill(pid_, signal);
}

Finished Child::Wait(std::chrono::seconds longest) {
  const bool in_time = Eventually([this] { return !Running(); }, longest);
  if (!in_time) {
    Signal(SIGKILL);
    Reap(/*block=*/true);
  }
  Finished finished;
  finished.output = output();
  finished.errors = errors();
  finished.seconds = over_ - began_;
  if (in_time) {
    finished.exit_code =
        WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  return finished;
}

std::string Child::output() const { return ReadWholeFile(output_path_); }
std::string Child::errors() const { return ReadWholeFile(errors_path_); }

Finished RunCommand(const std::vector<std::string>& arguments,
                    std::chrono::seconds longest, const ChildOptions& options) {
  return Child(arguments, options).Wait(longest);
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteWholeFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TemporaryFolder::TemporaryFolder() {
  std::string path =
      (std::filesystem::temp_directory_path() / "paceline-test-XXXXXX")
          .string();
  path_ = mkdtemp(path.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  bind(listener, reinterpret_cast<sockaddr*>(&address), length);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  close(listener);
  return std::to_string(ntohs(address.sin_port));
}

void PauseBetweenLooks() {
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace paceline
