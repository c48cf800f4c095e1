#include "worker/transport/plane_shared.h"

#include <malloc.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "core/rpc/channel.h"

namespace paceline {
namespace {

// gRPC reads into fresh memory and frees it on other threads.  glibc gives
// such memory back to the kernel at once and takes it again, page fault by
// page fault: a fifth of a receiver's CPU time (measured 2026-11, 1 MiB
// frames).  Both values are where glibc's own adaptation ends; setting one
// switches that off, so both are set.
void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kBytes = 32 << 20;
  mallopt(M_TRIM_THRESHOLD, 2 * kBytes);
  mallopt(M_MMAP_THRESHOLD, kBytes);
#endif
}

}  // namespace

PlaneShared::PlaneShared(const PlaneOptions& o, std::string thread_name)
    : options(o), timers(std::move(thread_name)) {
  KeepFreedMemory();
}

std::shared_ptr<grpc::Channel> CallChannels::Make(const std::string& address,
                                                  Role server) {
  std::shared_ptr<grpc::Channel> channel = MakeChannel(address, server);
  absl::MutexLock lock(&mutex_);
  channels_.push_back(channel);
  return channel;
}

void CallChannels::OnCallStarted() {
  absl::MutexLock lock(&mutex_);
  ++calls_;
}

void CallChannels::OnCallEnded() {
  absl::MutexLock lock(&mutex_);
  --calls_;
}

void CallChannels::DropUnused() {
  std::vector<std::shared_ptr<grpc::Channel>> dropped;  // without the lock
  absl::MutexLock lock(&mutex_);
  // A count of one is final: only this holds the channel.
  const auto unused = std::partition(
      channels_.begin(), channels_.end(),
      [](const auto& channel) { return channel.use_count() > 1; });
  dropped.assign(unused, channels_.end());
  channels_.erase(unused, channels_.end());
}

void CallChannels::AwaitCalls() {
  {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return calls_ == 0;
    };
    mutex_.Await(absl::Condition(&ended));
  }
  DropUnused();
}

TimerThread::TimerThread(std::string name)
    : thread_(std::move(name), [this] { Loop(); }) {}

TimerThread::~TimerThread() { Stop(); }

void TimerThread::RunAt(absl::Time when, std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  const auto at = tasks_.emplace(std::make_pair(when, next_id_++), task).first;
  if (at == tasks_.begin()) changed_.Signal();
}

void TimerThread::Stop() {
  // Freed without the lock: what a closure holds may end with it and come back
  // here.
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
    changed_.Signal();
  }
  thread_.Join();
}

void TimerThread::Loop() {
  for (;;) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      for (;;) {
        if (stopping_) return;
        if (tasks_.empty()) {
          changed_.Wait(&mutex_);
        } else if (tasks_.begin()->first.first <= absl::Now()) {
          break;
        } else {
          changed_.WaitWithDeadline(&mutex_, tasks_.begin()->first.first);
        }
      }
      task = std::move(tasks_.extract(tasks_.begin()).mapped());
    }
    task();
  }
}

}  // namespace paceline
