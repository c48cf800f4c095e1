#include "core/simulate/resources.h"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

// Two times that rounding alone keeps apart.
constexpr double kRelativeSlack = 1e-9;

}  // namespace

double Quota::PeriodBegin(double at) const {
  const double periods = (at - phase_) / period_;
  return phase_ + period_ * std::floor(periods + kRelativeSlack);
}

double Quota::UsedAt(double at) const {
  const double begin = PeriodBegin(at);
  if (at >= end_) {
    if (PeriodBegin(end_) < begin) return 0;
    at = end_;
  }
  // Busy all the time since base_, or since the period began.
  if (PeriodBegin(base_) < begin) return std::min(at - begin, budget_);
  return std::min(base_used_ + std::max(0.0, at - base_), budget_);
}

double Quota::Walk(double from, double used, double seconds) const {
  const double period_end = PeriodBegin(from) + period_;
  const double now = std::min(budget_ - used, period_end - from);
  if (seconds <= now) return from + seconds;
  const double later = seconds - now;
  const double whole =
      std::max(0.0, std::ceil(later / budget_ - kRelativeSlack) - 1);
  return period_end + whole * period_ + (later - whole * budget_);
}

double Quota::Take(double now, double seconds) {
  if (!limits()) {
    end_ = std::max(now, end_) + seconds;
    return end_;
  }
  if (now >= end_) {
    base_used_ = UsedAt(now);
    base_ = now;
    end_ = now;
  }
  end_ = Walk(end_, UsedAt(end_), seconds);
  return end_;
}

double Quota::Peek(double now, double seconds) const {
  return limits() ? Walk(now, UsedAt(now), seconds) : now + seconds;
}

void Processor::StartWork(CpuPart part, double seconds, double now) {
  working_ = true;
  work_part_ = part;
  work_start_ = std::max(now, frames_clear_);
  work_due_ = quota_.limits() ? quota_.Take(now, seconds * factor_)
                              : work_start_ + seconds * factor_;
  interrupted_ = 0;
}

void Processor::FinishWork() {
  Count(work_part_, work_due_ - work_start_ - interrupted_);
  working_ = false;
  ++work_version_;
}

double Processor::PushFrame(int frame, CpuPart part, double seconds,
                            double now) {
  const double takes = seconds * factor_;
  const double start = std::max(now, frames_clear_);
  if (quota_.limits()) {
    frames_clear_ = quota_.Peek(start, takes);
    const double all_clear = quota_.Take(now, takes);
    if (!working_) frames_clear_ = all_clear;
    frames_.push_back({frame, part, start, frames_clear_});
    if (!working_) return frames_clear_;
    if (work_start_ > now) {
      work_start_ = frames_clear_;
    } else {
      interrupted_ += std::min(frames_clear_ - start, all_clear - work_due_);
    }
    work_due_ = all_clear;
    return frames_clear_;
  }
  frames_clear_ = start + takes;
  frames_.push_back({frame, part, start, frames_clear_});
  if (working_) {
    // Work that has not begun waits for one frame more; else it is stopped.
    if (work_start_ > now) {
      work_start_ += takes;
    } else {
      interrupted_ += takes;
    }
    work_due_ += takes;
  }
  return frames_clear_;
}

Processor::FrameJob Processor::PopFrame() {
  const FrameJob job = frames_.front();
  frames_.pop_front();
  Count(job.part, job.due_seconds - job.start_seconds);
  return job;
}

void Processor::SetFactor(double factor, double now) {
  const double ratio = factor / factor_;
  factor_ = factor;
  const auto stretch = [&](double& at) {
    if (at > now) at = now + (at - now) * ratio;
  };
  const double frames_left = std::max(0.0, frames_clear_ - now);
  if (working_ && work_start_ <= now) interrupted_ += frames_left * (ratio - 1);
  for (FrameJob& job : frames_) {
    stretch(job.start_seconds);
    stretch(job.due_seconds);
  }
  stretch(frames_clear_);
  stretch(work_start_);
  stretch(work_due_);
  ++work_version_;
  ++frame_version_;
}

void Processor::Abandon(double now) {
  if (working_ && work_start_ < now) {
    const double frames_left = std::max(0.0, frames_clear_ - now);
    Count(work_part_, now - work_start_ - (interrupted_ - frames_left));
  }
  for (const FrameJob& job : frames_) {
    if (job.start_seconds >= now) continue;
    Count(job.part, std::min(job.due_seconds, now) - job.start_seconds);
  }
  working_ = false;
  frames_.clear();
  quota_.Forget(now);
  frames_clear_ = std::min(frames_clear_, now);
  ++work_version_;
  ++frame_version_;
}

Network::Network(const PlanProblem& problem, bool machine_ports)
    : problem_(problem),
      machine_ports_(machine_ports),
      links_(problem.devices.size()) {
  const int devices = static_cast<int>(problem.devices.size());
  int machines = 0;
  for (const Device& device : problem.devices) {
    machines = std::max(machines, device.machine + 1);
  }
  out_.resize(devices + (machine_ports ? machines : 0));
  in_.resize(out_.size());
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from == to) continue;
      const double rate = problem.links[from][to].bytes_per_second;
      for (Port* port : {&out_[PortOf(from, to)], &in_[PortOf(to, from)]}) {
        port->bytes_per_second = std::max(port->bytes_per_second, rate);
      }
    }
  }
}

Network::Departure Network::Send(int from, int to, double bytes, double now) {
  Port& port = out_[PortOf(from, to)];
  const double start = std::max(now, port.free_seconds);
  port.free_seconds = start + egress_seconds(from, to, bytes);

  std::vector<BusyLink>& links = links_[from];
  auto link = std::ranges::find(links, to, &BusyLink::to);
  if (link == links.end()) link = links.insert(link, {to, 0});
  const LinkCost& cost = problem_.links[from][to];
  const double begin = std::max(start, link->free_seconds);
  const double end = begin + bytes / cost.bytes_per_second;
  link->free_seconds = end;
  // It comes at the link's rate and is taken in at the port's: the port need
  // not begin before the last moment at which it still keeps up.
  return {begin, end,
          std::max(now, end + cost.latency_seconds -
                            ingress_seconds(from, to, bytes))};
}

double Network::Receive(int from, int to, double bytes, double now) {
  Port& port = in_[PortOf(to, from)];
  port.free_seconds =
      std::max(now, port.free_seconds) + ingress_seconds(from, to, bytes);
  return port.free_seconds;
}

void Network::Clear() {
  for (Port& port : out_) port.free_seconds = 0;
  for (Port& port : in_) port.free_seconds = 0;
  for (std::vector<BusyLink>& links : links_) links.clear();
}

}  // namespace paceline
