#include "core/simulate/processor.h"

#include <algorithm>

namespace paceline {

void Processor::StartWork(CpuPart part, double seconds, double now) {
  working_ = true;
  work_part_ = part;
  work_start_ = shared_ ? std::max(now, frames_clear_) : now;
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
  if (shared_ && working_) {
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
  if (shared_ && working_ && work_start_ <= now) {
    interrupted_ += frames_left * (ratio - 1);
  }
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
    const double frames_left = shared_ ? std::max(0.0, frames_clear_ - now) : 0;
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

}  // namespace paceline
