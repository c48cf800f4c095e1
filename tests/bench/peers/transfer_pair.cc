#include "tests/bench/peers/transfer_pair.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

// A child with both its ends.
struct Child {
  pid_t pid = -1;
  FILE* in = nullptr;   // what it reads
  FILE* out = nullptr;  // what it prints
};

// This process has no thread yet, and nothing of gRPC.
Child StartEnd(bool send, const std::string& way, const TransferSpec& spec) {
  int to[2], from[2];
  PACELINE_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0,
                 "pipe");
  std::fflush(nullptr);
  const pid_t pid = fork();
  PACELINE_CHECK(pid >= 0, "fork");
  if (pid == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    // The end of what it reads is the parent's alone.
    close(to[1]);
    RunTransfer(way, send, spec);
    std::fflush(nullptr);
    _exit(0);
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
  PACELINE_CHECK(status == 0, "a child ended with ", status);
}

}  // namespace

TransferCost MeasureTransfer(const std::string& way, const TransferSpec& spec) {
  const Child receiver = StartEnd(/*send=*/false, way, spec);
  const Child sender = StartEnd(/*send=*/true, way, spec);
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

}  // namespace paceline
