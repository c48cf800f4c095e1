#include "tests/bench/transfer_pair.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {
namespace {

// A child with both its ends.
struct Child {
  pid_t pid = -1;
  FILE* in = nullptr;   // what it reads
  FILE* out = nullptr;  // what it prints
};

Child StartChild(const std::vector<std::string>& arguments) {
  int to[2], from[2];
  PACELINE_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0,
                 "pipe");
  const pid_t pid = fork();
  PACELINE_CHECK(pid >= 0, "fork");
  if (pid == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    std::vector<char*> argv = {const_cast<char*>("bench_data_plane")};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  return {pid, fdopen(to[1], "w"), fdopen(from[0], "r")};
}

std::string ReadLine(const Child& child) {
  char line[256];
  PACELINE_CHECK(fgets(line, sizeof(line), child.out) != nullptr,
                 "a child ended early");
  return line;
}

void Tell(const Child& child, const std::string& line) {
  std::fputs(absl::StrCat(line, "\n").c_str(), child.in);
  std::fflush(child.in);
}

void Join(const Child& child) {
  std::fclose(child.in);
  std::fclose(child.out);
  int status = 0;
  waitpid(child.pid, &status, 0);
  PACELINE_CHECK(status == 0, absl::StrCat("a child ended with ", status));
}

Child StartEnd(const char* role, const std::string& way,
               const TransferSpec& spec) {
  return StartChild(
      {role, way, absl::StrCat(spec.frame_bytes), absl::StrCat(spec.frames)});
}

}  // namespace

TransferCost MeasureTransfer(const std::string& way, const TransferSpec& spec) {
  const Child receiver = StartEnd("receive", way, spec);
  const Child sender = StartEnd("send", way, spec);
  // Each says where it listens and is told of the other.
  const std::string receiver_port = ReadLine(receiver);
  const std::string sender_port = ReadLine(sender);
  Tell(receiver, sender_port);
  Tell(sender, receiver_port);

  TransferCost cost;
  double receiver_cpu = 0, sender_cpu = 0;
  PACELINE_CHECK(sscanf(ReadLine(receiver).c_str(), "%lf %lf", &cost.seconds,
                        &receiver_cpu) == 2,
                 "receiver");
  Tell(sender, "done");
  PACELINE_CHECK(sscanf(ReadLine(sender).c_str(), "%lf", &sender_cpu) == 1,
                 "sender");
  Tell(receiver, "done");
  Join(sender);
  Join(receiver);
  cost.cpu_seconds = receiver_cpu + sender_cpu;
  return cost;
}

bool RunChildIfAsked(int argc, char** argv, int* exit_code) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 4 ||
      (arguments[0] != "send" && arguments[0] != "receive")) {
    return false;
  }
  TransferSpec spec;
  PACELINE_CHECK(absl::SimpleAtoi(arguments[2], &spec.frame_bytes) &&
                     absl::SimpleAtoi(arguments[3], &spec.frames),
                 "arguments");
  *exit_code = RunTransfer(arguments[1], arguments[0] == "send", spec);
  return true;
}

}  // namespace paceline
