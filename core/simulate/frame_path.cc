#include "core/simulate/frame_path.h"

#include <algorithm>
#include <cstddef>

namespace paceline {
namespace {

absl::string_view WhatOf(SimFrameKind kind) {
  constexpr absl::string_view kNames[] = {"F", "B", "part"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

FramePath::FramePath(World& world) : world_(world) {
  const Program& program = world.program;
  // Inside a batch of training the schedule's own order holds senders back
  // before credit would, and the gate between batches.
  credit_frames_ = world.options.credit_frames;
  if (credit_frames_ == 0) {
    if (program.training || world.options.steps == 1) return;
    // The data plane grants twice its bound, and the bound of batches that
    // nothing separates is twice a batch (worker/control/run_order).
    credit_frames_ = 4 * program.micro_batches;
  }
  for (int b = 0; b + 1 < program.stages; ++b) {
    first_channel_.push_back(static_cast<int>(channels_.size()));
    for (const int above : program.workers_of[b]) {
      for (const int below : program.workers_of[b + 1]) {
        channels_.push_back({.from = above, .to = below, .waiting = {}});
        channels_.push_back({.from = below, .to = above, .waiting = {}});
      }
    }
    for (int m = 0; m < program.micro_batches; ++m) {
      ++channels_[ChannelOf(SimFrameKind::kActivation, b + 1, m)].batch_frames;
    }
  }
}

int FramePath::ChannelOf(SimFrameKind kind, int stage, int micro_batch) const {
  const Program& program = world_.program;
  const bool gradient = kind == SimFrameKind::kGradient;
  const int boundary = gradient ? stage : stage - 1;
  const int below = static_cast<int>(program.workers_of[boundary + 1].size());
  return first_channel_[boundary] +
         2 * (program.ReplicaOf(boundary, micro_batch) * below +
              program.ReplicaOf(boundary + 1, micro_batch)) +
         (gradient ? 1 : 0);
}

double FramePath::CpuSeconds(int worker, double bytes) const {
  const Device& device =
      world_.problem.devices[world_.program.device_of[worker]];
  return device.frame_seconds + bytes * device.frame_seconds_per_byte;
}

void FramePath::PushFrameCpu(int worker, int frame, CpuPart part) {
  Processor& processor = world_.processors[worker];
  const double due = processor.PushFrame(
      frame, part, CpuSeconds(worker, frames_[frame].bytes), world_.now);
  world_.queue.Push(
      due, {SimEventKind::kFrameCpuDue, worker, processor.frame_version()});
}

int FramePath::Send(SimFrame frame) {
  int id = static_cast<int>(frames_.size());
  if (unused_.empty()) {
    frames_.emplace_back();
  } else {
    id = unused_.back();
    unused_.pop_back();
  }
  frame.step = world_.step_of[frame.from];
  if (frame.kind != SimFrameKind::kPart && !channels_.empty()) {
    frame.channel = ChannelOf(frame.kind, frame.stage, frame.micro_batch);
  }
  frames_[id] = frame;
  if (CpuSeconds(frame.from, frame.bytes) > 0) {
    PushFrameCpu(frame.from, id, CpuPart::kSend);
  } else {
    Depart(id);
  }
  return id;
}

std::optional<int> FramePath::OnFrameCpuDue(int worker, uint32_t version) {
  Processor& processor = world_.processors[worker];
  if (version != processor.frame_version()) return std::nullopt;
  const Processor::FrameJob job = processor.PopFrame();
  const SimFrame& frame = frames_[job.frame];
  world_.trace.Add(TraceSlice{.begin_seconds = job.start_seconds,
                              .seconds = job.due_seconds - job.start_seconds,
                              .device = world_.program.device_of[worker],
                              .track = TraceTrack::kFrames,
                              .what = WhatOf(frame.kind),
                              .receives = job.part == CpuPart::kReceive,
                              .stage = frame.stage,
                              .micro_batch = frame.micro_batch,
                              .step = frame.step});
  if (job.part == CpuPart::kReceive) return job.frame;
  Depart(job.frame);
  return std::nullopt;
}

void FramePath::Depart(int id) {
  SimFrame& frame = frames_[id];
  if (frame.channel >= 0) {
    Channel& channel = channels_[frame.channel];
    if (channel.on_the_way >= credit_frames_) {
      channel.waiting.push_back(id);
      return;
    }
    ++channel.on_the_way;
  }
  const Network::Departure departure = world_.network.Send(
      world_.program.device_of[frame.from], world_.program.device_of[frame.to],
      frame.bytes, world_.now);
  frame.link_begin_seconds = departure.begin_seconds;
  frame.link_seconds = departure.end_seconds - departure.begin_seconds;
  world_.queue.Push(departure.reach_seconds, {SimEventKind::kReachPort, id});
}

void FramePath::OnReachPort(int id) {
  const SimFrame& frame = frames_[id];
  const int from = world_.program.device_of[frame.from];
  const int to = world_.program.device_of[frame.to];
  DeviceUse& sender = world_.uses[frame.from];
  ++sender.frames_sent;
  sender.bytes_sent += frame.bytes;
  sender.egress_seconds += world_.network.egress_seconds(from, to, frame.bytes);
  const double there =
      world_.network.Receive(from, to, frame.bytes, world_.now);
  world_.queue.Push(there, {SimEventKind::kArrived, id});
}

std::optional<int> FramePath::OnArrived(int id) {
  const SimFrame& frame = frames_[id];
  const int from = world_.program.device_of[frame.from];
  const int to = world_.program.device_of[frame.to];
  DeviceUse& receiver = world_.uses[frame.to];
  ++receiver.frames_received;
  receiver.bytes_received += frame.bytes;
  receiver.ingress_seconds +=
      world_.network.ingress_seconds(from, to, frame.bytes);
  world_.trace.Add(TraceSlice{.begin_seconds = frame.link_begin_seconds,
                              .seconds = frame.link_seconds,
                              .device = from,
                              .peer = to,
                              .track = TraceTrack::kLink,
                              .what = WhatOf(frame.kind),
                              .stage = frame.stage,
                              .micro_batch = frame.micro_batch,
                              .step = frame.step});
  if (!(CpuSeconds(frame.to, frame.bytes) > 0)) return id;
  PushFrameCpu(frame.to, id, CpuPart::kReceive);
  return std::nullopt;
}

void FramePath::OnConsumed(SimFrameKind kind, int stage, int micro_batch) {
  if (channels_.empty()) return;
  const int channel = ChannelOf(kind, stage, micro_batch);
  const double latency =
      world_.LatencyBetween(channels_[channel].to, channels_[channel].from);
  world_.queue.Push(world_.now + latency, {SimEventKind::kCredit, channel});
}

int FramePath::OnCredit(int index) {
  Channel& channel = channels_[index];
  --channel.on_the_way;
  if (!channel.waiting.empty()) {
    const int frame = channel.waiting.front();
    channel.waiting.pop_front();
    Depart(frame);
  }
  return channel.from;
}

bool FramePath::HasRoomForBatch(int stage, int worker) const {
  if (channels_.empty() || stage + 1 >= world_.program.stages) return true;
  const size_t end = stage + 2 < world_.program.stages
                         ? static_cast<size_t>(first_channel_[stage + 1])
                         : channels_.size();
  for (size_t c = first_channel_[stage]; c < end; c += 2) {
    const Channel& channel = channels_[c];
    if (channel.from != worker || channel.to == worker) continue;
    const int wanted = std::min(channel.batch_frames, (credit_frames_ + 1) / 2);
    const int there =
        channel.on_the_way + static_cast<int>(channel.waiting.size());
    if (there + wanted > credit_frames_) return false;
  }
  return true;
}

void FramePath::Clear() {
  frames_.clear();
  unused_.clear();
  for (Channel& channel : channels_) {
    channel.on_the_way = 0;
    channel.waiting.clear();
  }
}

StepEnd::StepEnd(World& world, FramePath& path)
    : world_(world), path_(path), exchanges_(world.program.workers()) {
  for (int stage = 0; stage < world.program.stages; ++stage) {
    const std::vector<int>& replicas = world.program.workers_of[stage];
    if (replicas.size() == 1) continue;
    for (const int replica : replicas) {
      exchanges_[replica] = {.stage = stage,
                             .others = static_cast<int>(replicas.size()) - 1};
    }
  }
}

void StepEnd::OnComputed(int worker) {
  exchanges_[worker].computed = true;
  SendToOthers(worker, /*sum=*/false);
  GoOn(worker);
}

void StepEnd::OnPart(const SimFrame& part) {
  Exchange& exchange = exchanges_[part.to];
  ++(part.micro_batch == 0 ? exchange.parts : exchange.sums);
  GoOn(part.to);
}

void StepEnd::GoOn(int worker) {
  Exchange& exchange = exchanges_[worker];
  if (!exchange.computed || exchange.parts < exchange.others) return;
  if (!exchange.summed) {
    exchange.summed = true;
    SendToOthers(worker, /*sum=*/true);
  }
  if (exchange.sums < exchange.others) return;
  exchange.Begin();
  world_.queue.Push(world_.now + world_.LatencyBetween(worker, 0),
                    {SimEventKind::kReport, worker});
}

void StepEnd::SendToOthers(int worker, bool sum) {
  const Exchange& exchange = exchanges_[worker];
  const std::vector<int>& all = world_.program.workers_of[exchange.stage];
  const auto own = std::ranges::find(all, worker) - all.begin();
  for (int i = 1; i <= exchange.others; ++i) {
    const int to = all[(own + i) % all.size()];
    path_.Send({.kind = SimFrameKind::kPart,
                .stage = exchange.stage,
                .micro_batch = sum ? 1 : 0,
                .from = worker,
                .to = to,
                .bytes = world_.stages[exchange.stage].parameter_bytes /
                         (exchange.others + 1)});
  }
}

void StepEnd::OnReport() {
  if (++reports_ < world_.program.workers()) return;
  reports_ = 0;
  for (int worker = 0; worker < world_.program.workers(); ++worker) {
    world_.queue.Push(world_.now + world_.options.gate_seconds +
                          world_.LatencyBetween(0, worker),
                      {SimEventKind::kVerdict, worker});
  }
}

void StepEnd::Clear() {
  reports_ = 0;
  for (Exchange& exchange : exchanges_) exchange.Begin();
}

}  // namespace paceline
