#include "core/plan/policies/soft_relaxation.h"

#include <algorithm>
#include <cmath>

#include "core/plan/stage_memory.h"

namespace paceline {
namespace {

// Keeps W and sums of memberships above 0; in units of unit_ and devices.
constexpr double kTiny = 1e-9;
// In an endless stream the mean counts so much beside the bottleneck, so that
// stages below it feel a slope too.
constexpr double kMeanWeight = 0.02;
constexpr int kRingOrder = 3;  // mean of order 2^3 over the pairs of a ring

// (a^p + b^p)^(1/p).
double SmoothMax(double a, double b, int sharpness) {
  const double most = std::max(a, b);
  if (most == 0) return 0;
  return most *
         RootOf(PowerOf(a / most, sharpness) + PowerOf(b / most, sharpness),
                sharpness);
}

// d SmoothMax / d value.
double SmoothSlope(double value, double smooth, int sharpness) {
  if (smooth == 0 || value == 0) return 0;
  return PowerOf(value / smooth, sharpness) * smooth / value;
}

// A number with its slopes by the devices of a stage, before it and after it.
// What InFlightOf() needs of one: fractions of devices are not rounded.
struct Sloped {
  explicit Sloped(double number) : value(number) {}

  double value = 0;
  double by_replicas = 0;
  double by_earlier = 0;
  double by_later = 0;
};

Sloped Combined(double value, const Sloped& a, double of_a, const Sloped& b,
                double of_b) {
  Sloped sum(value);
  sum.by_replicas = of_a * a.by_replicas + of_b * b.by_replicas;
  sum.by_earlier = of_a * a.by_earlier + of_b * b.by_earlier;
  sum.by_later = of_a * a.by_later + of_b * b.by_later;
  return sum;
}

Sloped operator+(const Sloped& a, const Sloped& b) {
  return Combined(a.value + b.value, a, 1, b, 1);
}
Sloped operator-(const Sloped& a, const Sloped& b) {
  return Combined(a.value - b.value, a, 1, b, -1);
}
Sloped operator*(const Sloped& a, const Sloped& b) {
  return Combined(a.value * b.value, a, b.value, b, a.value);
}
Sloped operator/(const Sloped& a, const Sloped& b) {
  const double ratio = a.value / b.value;
  return Combined(ratio, a, 1 / b.value, b, -ratio / b.value);
}
bool operator<(const Sloped& a, const Sloped& b) { return a.value < b.value; }
Sloped WholeBelow(const Sloped& number) { return number; }
Sloped WholeAbove(const Sloped& number) { return number; }

// The mean of order 8 of what `pairs` says of a stage's pairs, times the sum of
// z_u z_v over them; and its slopes by both sums.
struct PairMean {
  double value = 0;
  double to_weight = 0;
  double to_sum = 0;
};

PairMean MeanOfPairs(double weight, double sum) {
  if (!(weight > 1e-30) || !(sum > 1e-30)) return {};
  const double root = RootOf(sum / weight, kRingOrder);
  return {weight * root, 7.0 / 8 * root, root / 8 * weight / sum};
}

}  // namespace

Relaxation::Relaxation(const CostTable& table, int stages)
    : table_(table),
      stages_(stages),
      devices_(table.devices()),
      cuts_(table, stages) {
  FillDevices();
  FillPairs();
  micro_batches_ = static_cast<double>(table.problem().micro_batches);
  member_.assign(static_cast<size_t>(devices_) * (stages + 1), 0);
  for (Vector* matrix :
       {&z_, &to_z_, &work_, &to_work_, &share_, &to_share_, &ahead_, &behind_,
        &late_ahead_, &late_behind_, &ring_, &ring_late_, &port_left_,
        &port_right_, &to_left_, &to_right_, &pushed_, &pulled_}) {
    matrix->assign(At(devices_, 0), 0);
  }
  for (Vector* vector : {&count_, &compute_, &sync_, &time_, &to_compute_,
                         &to_sync_, &to_time_, &busy_, &delay_, &to_delay_}) {
    vector->assign(static_cast<size_t>(stages), 0);
  }
}

size_t Relaxation::size() const {
  return static_cast<size_t>(stages_) + member_.size();
}

void Relaxation::FillDevices() {
  const PlanProblem& problem = table_.problem();
  double rate = 0;
  for (int d = 0; d < devices_; ++d) {
    rate += 1 / table_.Work({0, table_.layers()}, d);
  }
  unit_ = 1 / rate;
  if (!(unit_ > 0)) unit_ = 1;  // a chain that takes no time
  const double each_way = problem.training ? 2 : 1;
  for (int d = 0; d < devices_; ++d) {
    const Device& device = problem.devices[d];
    scale_.push_back(table_.ScaleOf(d) / unit_);
    frame_.push_back(each_way * device.frame_seconds / unit_);
    frame_per_byte_.push_back(each_way * device.frame_seconds_per_byte / unit_);
  }
}

void Relaxation::FillPairs() {
  const size_t pairs = static_cast<size_t>(devices_) * devices_;
  for (Vector* matrix : {&per_byte_, &per_byte_turned_, &latency_,
                         &latency_turned_, &ring_bytes8_, &ring_latency8_}) {
    matrix->assign(pairs, 0);
  }
  double most_per_byte = 0;
  double most_latency = 0;
  for (int a = 0; a < devices_; ++a) {
    for (int b = 0; b < devices_; ++b) {
      const size_t pair = static_cast<size_t>(a) * devices_ + b;
      per_byte_[pair] = table_.Wire(a, b).seconds_per_byte / unit_;
      per_byte_turned_[pair] = table_.Wire(b, a).seconds_per_byte / unit_;
      latency_[pair] = table_.Wire(a, b).latency_seconds / unit_;
      latency_turned_[pair] = table_.Wire(b, a).latency_seconds / unit_;
      ring_bytes8_[pair] = table_.RingWire(a, b).seconds_per_byte;
      ring_latency8_[pair] = table_.RingWire(a, b).latency_seconds;
      most_per_byte = std::max(most_per_byte, ring_bytes8_[pair]);
      most_latency = std::max(most_latency, ring_latency8_[pair]);
    }
  }
  const auto to_the_8th = [](Vector& values, double most) {
    for (double& value : values) {
      value = most > 0 ? PowerOf(value / most, kRingOrder) : 0;
    }
  };
  to_the_8th(ring_bytes8_, most_per_byte);
  to_the_8th(ring_latency8_, most_latency);
  const double each = 2 / table_.SyncEvery() / unit_;
  ring_per_byte_ = each * most_per_byte;
  ring_latency_ = each * most_latency;
}

void Relaxation::Multiply(const Vector& links, const Vector& values,
                          Vector& into) const {
  for (int u = 0; u < devices_; ++u) {
    double* const out = &into[At(u, 0)];
    for (int v = 0; v < devices_; ++v) {
      const double link = links[static_cast<size_t>(u) * devices_ + v];
      if (link == 0) continue;
      const double* const in = &values[At(v, 0)];
      for (int s = 0; s < stages_; ++s) out[s] += link * in[s];
    }
  }
}

// --- forward ----------------------------------------------------------------

void Relaxation::Memberships(const double* logits) {
  const size_t choices = static_cast<size_t>(stages_) + 1;
  std::fill(count_.begin(), count_.end(), kTiny);
  for (int d = 0; d < devices_; ++d) {
    double* const member = &member_[static_cast<size_t>(d) * choices];
    Softmax(logits + static_cast<size_t>(d) * choices, choices,
            soft_.membership, member);
    for (int s = 0; s < stages_; ++s) {
      z_[At(d, s)] = member[s];
      count_[s] += member[s];
    }
  }
}

void Relaxation::Work() {
  for (int d = 0; d < devices_; ++d) {
    const int row = cuts_.SecondsFeature(table_.RowOf(d));
    for (int s = 0; s < stages_; ++s) {
      const int boundaries = (s > 0) + (s + 1 < stages_);
      const double bytes = cuts_.Mean(cuts_.BytesFeature(), s) +
                           cuts_.Mean(cuts_.BytesFeature(), s + 1);
      work_[At(d, s)] =
          scale_[d] * (cuts_.Mean(row, s + 1) - cuts_.Mean(row, s)) +
          frame_[d] * boundaries + frame_per_byte_[d] * bytes + kTiny;
    }
  }
}

void Relaxation::Shares(int stage) {
  if (!Uneven()) {
    // Under its membership, so that a slow device elsewhere sets no scale.
    double most = 0;
    for (int d = 0; d < devices_; ++d) {
      const size_t at = At(d, stage);
      share_[at] = z_[at] / count_[stage];
      most = std::max(most, RootOf(z_[at], soft_.sharpness) * work_[at]);
    }
    double sum = 0;
    for (int d = 0; d < devices_; ++d) {
      const size_t at = At(d, stage);
      sum += PowerOf(RootOf(z_[at], soft_.sharpness) * work_[at] / most,
                     soft_.sharpness);
    }
    compute_[stage] = most * RootOf(sum, soft_.sharpness) / count_[stage];
    return;
  }
  double sum = 0;
  for (int d = 0; d < devices_; ++d) {
    share_[At(d, stage)] = z_[At(d, stage)] / work_[At(d, stage)];
    sum += share_[At(d, stage)];
  }
  compute_[stage] = 1 / sum;
  for (int d = 0; d < devices_; ++d) share_[At(d, stage)] /= sum;
}

void Relaxation::Transfers() {
  for (Vector* matrix : {&ahead_, &behind_, &late_ahead_, &late_behind_}) {
    std::fill(matrix->begin(), matrix->end(), 0);
  }
  Multiply(per_byte_, share_, ahead_);
  Multiply(latency_, share_, late_ahead_);
  if (BothWays()) {
    behind_ = ahead_;
    late_behind_ = late_ahead_;
  } else {
    Multiply(per_byte_turned_, share_, behind_);
    Multiply(latency_turned_, share_, late_behind_);
  }
  for (int s = 1; s < stages_; ++s) {
    const double bytes = cuts_.Mean(cuts_.BytesFeature(), s);
    delay_[s] = 0;
    for (int d = 0; d < devices_; ++d) {
      const double left = share_[At(d, s - 1)];
      port_left_[At(d, s)] = bytes * left * ahead_[At(d, s)];
      port_right_[At(d, s)] = bytes * share_[At(d, s)] * behind_[At(d, s - 1)];
      delay_[s] += port_left_[At(d, s)] + left * late_ahead_[At(d, s)];
    }
  }
}

void Relaxation::Syncs() {
  std::fill(ring_.begin(), ring_.end(), 0);
  std::fill(ring_late_.begin(), ring_late_.end(), 0);
  const bool rings = table_.problem().training && table_.problem().replicas;
  if (rings) {
    Multiply(ring_bytes8_, z_, ring_);
    Multiply(ring_latency8_, z_, ring_late_);
  }
  for (int s = 0; s < stages_; ++s) {
    double weight = 0;
    double bytes = 0;
    double late = 0;
    for (int d = 0; rings && d < devices_; ++d) {
      const double z = z_[At(d, s)];
      weight += z * (count_[s] - z);
      bytes += z * ring_[At(d, s)];
      late += z * ring_late_[At(d, s)];
    }
    const double parameters = cuts_.Mean(cuts_.ParametersFeature(), s + 1) -
                              cuts_.Mean(cuts_.ParametersFeature(), s);
    sync_[s] = ring_per_byte_ * parameters * MeanOfPairs(weight, bytes).value /
                   (count_[s] * count_[s]) +
               ring_latency_ * MeanOfPairs(weight, late).value / count_[s];
    time_[s] = table_.problem().overlap
                   ? SmoothMax(compute_[s], sync_[s], soft_.sharpness)
                   : compute_[s] + sync_[s];
  }
}

void Relaxation::Objective() {
  const bool overlap = table_.problem().overlap;
  double sum = 0;
  double most = 0;
  for (int s = 0; s < stages_; ++s) {
    busy_[s] = time_[s];
    if (!overlap) {
      busy_[s] += delay_[s] + (s + 1 < stages_ ? delay_[s + 1] : 0);
    }
    sum += time_[s] + delay_[s];
    most = std::max(most, busy_[s]);
  }
  const Vector* const ports[] = {&port_left_, &port_right_};
  double powers = 0;
  for (int s = 0; s < stages_; ++s) {
    powers += PowerOf(busy_[s] / most, soft_.sharpness);
  }
  for (const Vector* port : ports) {
    if (!overlap) break;
    for (const double busy : *port) {
      // Ports above the stages would overflow the power.
      if (busy > most) {
        powers *= PowerOf(most / busy, soft_.sharpness);
        most = busy;
      }
      powers += PowerOf(busy / most, soft_.sharpness);
    }
  }
  bottleneck_ = most * RootOf(powers, soft_.sharpness);
  objective_ = micro_batches_ == 0 ? bottleneck_ + kMeanWeight * sum / stages_
                                   : sum + (micro_batches_ - 1) * bottleneck_;
}

// Both penalties go the whole way back at once: nothing else hangs on them.
void Relaxation::ReplicaPenalty() {
  if (table_.problem().replicas) return;
  for (int s = 0; s < stages_; ++s) {
    for (int d = 0; d < devices_; ++d) {
      const double z = z_[At(d, s)];
      loss_ += soft_.penalty * z * (count_[s] - z);
      to_z_[At(d, s)] += soft_.penalty * 2 * (count_[s] - z);
    }
  }
}

void Relaxation::MemoryPenalty() {
  const PlanProblem& problem = table_.problem();
  double all = 0;
  for (const double count : count_) all += count;
  double after = 0;  // sum of z in later stages
  Vector to_count(count_.size(), 0);
  Vector to_earlier(count_.size(), 0);  // of the sum before each stage
  Vector to_later(count_.size(), 0);    // of the sum behind each stage
  for (int s = stages_ - 1; s >= 0; --s) {
    const auto between = [&](int feature) {
      return cuts_.Mean(feature, s + 1) - cuts_.Mean(feature, s);
    };
    Sloped replicas(std::max(count_[s], 1.0));
    replicas.by_replicas = count_[s] > 1 ? 1 : 0;
    Sloped earlier(std::max(all - after - count_[s], 0.0));
    earlier.by_earlier = 1;
    Sloped later(after);
    later.by_later = 1;
    const InFlight<Sloped> in_flight =
        InFlightOf(problem, replicas, earlier, later);
    const StageAmounts amounts = {
        between(cuts_.FixedFeature()), between(cuts_.ParametersFeature()),
        between(cuts_.KeptFeature()), between(cuts_.OutputsFeature()),
        cuts_.Mean(cuts_.BytesFeature(), s) +
            cuts_.Mean(cuts_.BytesFeature(), s + 1)};
    const Sloped need = BytesOf(problem, amounts, in_flight);
    double to_need = 0;
    for (int d = 0; d < devices_; ++d) {
      const double there = problem.devices[d].memory_bytes;
      if (there == 0 || need.value <= there) continue;
      const double excess = need.value / there - 1;
      const double charge = soft_.penalty * (excess + excess * excess);
      loss_ += charge * z_[At(d, s)];
      to_z_[At(d, s)] += charge;
      to_need += soft_.penalty * z_[At(d, s)] * (1 + 2 * excess) / there;
    }
    const auto add = [&](int feature, double copies) {
      to_mean_[cuts_.At(feature, s)] -= to_need * copies;
      to_mean_[cuts_.At(feature, s + 1)] += to_need * copies;
    };
    add(cuts_.FixedFeature(), 1);
    add(cuts_.ParametersFeature(), in_flight.stashed.value);
    add(cuts_.KeptFeature(), in_flight.kept.value);
    add(cuts_.OutputsFeature(), in_flight.split.value);
    for (const int cut : {s, s + 1}) {
      to_mean_[cuts_.At(cuts_.BytesFeature(), cut)] +=
          kFramesOfABoundary * to_need;
    }
    to_count[s] = to_need * need.by_replicas;
    to_earlier[s] = to_need * need.by_earlier;
    to_later[s] = to_need * need.by_later;
    after += count_[s];
  }
  double before = 0;  // of what stages before say of those behind them
  double behind = 0;
  for (const double slope : to_earlier) behind += slope;
  for (int s = 0; s < stages_; ++s) {
    behind -= to_earlier[s];
    for (int d = 0; d < devices_; ++d) {
      to_z_[At(d, s)] += to_count[s] + before + behind;
    }
    before += to_later[s];
  }
}

// --- backward ---------------------------------------------------------------

void Relaxation::ObjectiveBack() {
  const bool overlap = table_.problem().overlap;
  const double to_bottleneck =
      (micro_batches_ == 0 ? 1 : micro_batches_ - 1) / objective_;
  const double to_sum =
      (micro_batches_ == 0 ? kMeanWeight / stages_ : 1) / objective_;
  for (int s = 0; s < stages_; ++s) to_time_[s] = to_delay_[s] = to_sum;
  for (int s = 0; s < stages_; ++s) {
    const double to_busy =
        to_bottleneck * SmoothSlope(busy_[s], bottleneck_, soft_.sharpness);
    to_time_[s] += to_busy;
    if (overlap) continue;
    to_delay_[s] += to_busy;
    if (s + 1 < stages_) to_delay_[s + 1] += to_busy;
  }
  for (size_t i = 0; i < port_left_.size(); ++i) {
    to_left_[i] = to_right_[i] = 0;
    if (!overlap) continue;
    to_left_[i] = to_bottleneck *
                  SmoothSlope(port_left_[i], bottleneck_, soft_.sharpness);
    to_right_[i] = to_bottleneck *
                   SmoothSlope(port_right_[i], bottleneck_, soft_.sharpness);
  }
}

void Relaxation::SyncsBack() {
  const bool rings = table_.problem().training && table_.problem().replicas;
  for (int s = 0; s < stages_; ++s) {
    to_compute_[s] = to_sync_[s] = to_time_[s];
    if (table_.problem().overlap) {
      to_compute_[s] *= SmoothSlope(compute_[s], time_[s], soft_.sharpness);
      to_sync_[s] *= SmoothSlope(sync_[s], time_[s], soft_.sharpness);
    }
    if (!rings || to_sync_[s] == 0) continue;
    double weight = 0;
    double bytes = 0;
    double late = 0;
    double squares = 0;
    for (int d = 0; d < devices_; ++d) {
      const double z = z_[At(d, s)];
      weight += z * (count_[s] - z);
      bytes += z * ring_[At(d, s)];
      late += z * ring_late_[At(d, s)];
      squares += z;
    }
    const PairMean by_bytes = MeanOfPairs(weight, bytes);
    const PairMean by_late = MeanOfPairs(weight, late);
    const double count = count_[s];
    const int feature = cuts_.ParametersFeature();
    const double parameters =
        cuts_.Mean(feature, s + 1) - cuts_.Mean(feature, s);
    const double a = to_sync_[s] * ring_per_byte_ / (count * count);
    const double b = to_sync_[s] * ring_latency_ / count;
    to_mean_[cuts_.At(feature, s + 1)] += a * by_bytes.value;
    to_mean_[cuts_.At(feature, s)] -= a * by_bytes.value;
    const double to_weight =
        a * parameters * by_bytes.to_weight + b * by_late.to_weight;
    // count_ is in both divisors and in the weight.
    const double to_count = -2 * a * parameters * by_bytes.value / count -
                            b * by_late.value / count + to_weight * squares;
    for (int d = 0; d < devices_; ++d) {
      const size_t at = At(d, s);
      to_z_[at] += to_count + to_weight * (count - 2 * z_[at]) +
                   2 * a * parameters * by_bytes.to_sum * ring_[at] +
                   2 * b * by_late.to_sum * ring_late_[at];
    }
  }
}

void Relaxation::TransfersBack() {
  for (Vector* matrix : {&to_share_, &pushed_, &pulled_}) {
    std::fill(matrix->begin(), matrix->end(), 0);
  }
  for (int s = 1; s < stages_; ++s) {
    const double bytes = cuts_.Mean(cuts_.BytesFeature(), s);
    double to_bytes = 0;
    for (int d = 0; d < devices_; ++d) {
      const size_t left = At(d, s - 1);
      const size_t right = At(d, s);
      // The left ports' sum is the delay's larger part.
      const double to_left = to_left_[right] + to_delay_[s];
      const double to_right = to_right_[right];
      to_bytes += to_left * share_[left] * ahead_[right] +
                  to_right * share_[right] * behind_[left];
      to_share_[left] +=
          to_left * bytes * ahead_[right] + to_delay_[s] * late_ahead_[right];
      to_share_[right] +=
          to_right * bytes * behind_[left] + to_delay_[s] * late_behind_[left];
      pushed_[right] = to_left * bytes * share_[left];
      pulled_[left] = to_right * bytes * share_[right];
    }
    to_mean_[cuts_.At(cuts_.BytesFeature(), s)] += to_bytes;
  }
  if (BothWays()) {
    for (size_t i = 0; i < pushed_.size(); ++i) pushed_[i] += pulled_[i];
  } else {
    Multiply(per_byte_, pulled_, to_share_);
  }
  Multiply(per_byte_turned_, pushed_, to_share_);
}

void Relaxation::SharesBack(int stage) {
  double mean = 0;
  for (int d = 0; d < devices_; ++d) {
    mean += to_share_[At(d, stage)] * share_[At(d, stage)];
  }
  const double time = compute_[stage];
  if (Uneven()) {
    for (int d = 0; d < devices_; ++d) {
      const size_t at = At(d, stage);
      const double to_rate =
          (to_share_[at] - mean - to_compute_[stage] * time) * time;
      to_z_[at] += to_rate / work_[at];
      to_work_[at] -= to_rate * z_[at] / (work_[at] * work_[at]);
    }
    return;
  }
  const double count = count_[stage];
  const double smooth = time * count;
  const double p = static_cast<double>(1 << soft_.sharpness);
  for (int d = 0; d < devices_; ++d) {
    const size_t at = At(d, stage);
    // z (W / smooth)^p, which stays in [0, 1] where (W / smooth)^p may not.
    const double part = PowerOf(
        RootOf(z_[at], soft_.sharpness) * work_[at] / smooth, soft_.sharpness);
    const double by_z = z_[at] > 0 ? smooth * part / (p * z_[at]) : 0;
    to_z_[at] += (to_share_[at] - mean) / count +
                 to_compute_[stage] * (by_z - time) / count;
    to_work_[at] += to_compute_[stage] * part * smooth / work_[at] / count;
  }
}

void Relaxation::WorkBack() {
  for (int d = 0; d < devices_; ++d) {
    const int row = cuts_.SecondsFeature(table_.RowOf(d));
    for (int s = 0; s < stages_; ++s) {
      const double to_work = to_work_[At(d, s)];
      to_mean_[cuts_.At(row, s + 1)] += to_work * scale_[d];
      to_mean_[cuts_.At(row, s)] -= to_work * scale_[d];
      const double to_bytes = to_work * frame_per_byte_[d];
      to_mean_[cuts_.At(cuts_.BytesFeature(), s)] += to_bytes;
      to_mean_[cuts_.At(cuts_.BytesFeature(), s + 1)] += to_bytes;
    }
  }
}

void Relaxation::MembershipsBack(double* gradient) const {
  const size_t choices = static_cast<size_t>(stages_) + 1;
  Vector to_member(choices, 0);
  for (int d = 0; d < devices_; ++d) {
    for (int s = 0; s < stages_; ++s) to_member[s] = to_z_[At(d, s)];
    const size_t at = static_cast<size_t>(d) * choices;
    SoftmaxBack(&member_[at], to_member.data(), choices, soft_.membership,
                gradient + at);
  }
}

double Relaxation::Loss(const std::vector<double>& logits,
                        const Softness& softness,
                        std::vector<double>& gradient) {
  soft_ = softness;
  cuts_.Forward(logits.data(), softness.cut_width);
  Memberships(logits.data() + stages_);
  Work();
  for (int s = 0; s < stages_; ++s) Shares(s);
  Transfers();
  Syncs();
  Objective();

  std::fill(to_z_.begin(), to_z_.end(), 0);
  std::fill(to_work_.begin(), to_work_.end(), 0);
  to_mean_.assign(cuts_.At(cuts_.features(), 0), 0);
  loss_ = std::log(objective_);
  ReplicaPenalty();
  MemoryPenalty();
  ObjectiveBack();
  SyncsBack();
  TransfersBack();
  for (int s = 0; s < stages_; ++s) SharesBack(s);
  WorkBack();
  gradient.assign(size(), 0);
  cuts_.Backward(to_mean_, gradient.data());
  MembershipsBack(gradient.data() + stages_);
  return loss_;
}

// --- rounding ---------------------------------------------------------------

std::vector<WalkStage> Relaxation::Round(const std::vector<double>& logits) {
  const std::vector<int> cuts = cuts_.Nearest(logits.data());
  std::vector<WalkStage> placed(static_cast<size_t>(stages_));
  for (int s = 0; s < stages_; ++s) placed[s].layers = {cuts[s], cuts[s + 1]};

  const size_t choices = static_cast<size_t>(stages_) + 1;
  const double* const member = logits.data() + stages_;
  // How much each device leans to a stage, against the best of its choices.
  struct Leaning {
    double less;
    int device;
    int stage;
  };
  std::vector<Leaning> leanings;
  for (int d = 0; d < devices_; ++d) {
    const double* const own = member + static_cast<size_t>(d) * choices;
    const double best = *std::max_element(own, own + choices);
    for (int s = 0; s < stages_; ++s) {
      leanings.push_back({best - own[s], d, s});
    }
  }
  std::stable_sort(
      leanings.begin(), leanings.end(),
      [](const Leaning& a, const Leaning& b) { return a.less < b.less; });
  // Every stage its first device, by who gives up least; then the others go
  // where they lean.
  std::vector<bool> used(static_cast<size_t>(devices_), false);
  for (const Leaning& leaning : leanings) {
    if (used[leaning.device] || !placed[leaning.stage].devices.empty()) {
      continue;
    }
    used[leaning.device] = true;
    placed[leaning.stage].devices = {leaning.device};
  }
  for (const Leaning& leaning : leanings) {
    if (!table_.problem().replicas || leaning.less > 0) break;
    if (used[leaning.device]) continue;
    used[leaning.device] = true;
    std::vector<int>& devices = placed[leaning.stage].devices;
    devices.insert(
        std::lower_bound(devices.begin(), devices.end(), leaning.device),
        leaning.device);
  }
  return placed;
}

}  // namespace paceline
