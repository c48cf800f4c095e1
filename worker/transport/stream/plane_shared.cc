#include "worker/transport/stream/plane_shared.h"

#include <malloc.h>

#include <algorithm>

#include "core/rpc/channel.h"

namespace paceline {
namespace {

// gRPC reads into fresh memory and frees it on other threads.  glibc returns
// such memory to the kernel at once and takes it again, page fault by page
// fault; this took a fifth of a receiver's CPU time (measured 2026-11, 1 MiB
// frames).  Both values are the limits of glibc's own adaptation.  Setting one
// switches the adaptation off, so both are set.
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

void CallChannels::DropUnused() {
  // freed without the lock
  std::vector<std::shared_ptr<grpc::Channel>> dropped;
  absl::MutexLock lock(&mutex_);
  // A count of one is final: only this object has the channel.
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

void TimerThread::RunAfter(absl::Duration pause, std::function<void()> task) {
  SteadyLock lock(&mutex_);
  if (stopping_) return;
  tasks_.emplace(std::make_pair(SteadyNow() + pause, next_id_++), task);
}

void TimerThread::Stop() {
  // Freed without the lock: a closure's objects may end with it and call this
  // object again.
  std::map<std::pair<Instant, uint64_t>, std::function<void()>> dropped;
  {
    SteadyLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  thread_.Join();
}

void TimerThread::Loop() {
  for (;;) {
    std::function<void()> task;
    {
      SteadyLock lock(&mutex_);
      Instant due;
      const auto is_earlier = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ ||
               (!tasks_.empty() && tasks_.begin()->first.first < due);
      };
      do {
        if (stopping_) return;
        due = tasks_.empty() ? Instant{kForever} : tasks_.begin()->first.first;
      } while (
          mutex_.AwaitFor(absl::Condition(&is_earlier), due - SteadyNow()) ||
          tasks_.empty());
      task = std::move(tasks_.extract(tasks_.begin()).mapped());
    }
    task();
  }
}

}  // namespace paceline
