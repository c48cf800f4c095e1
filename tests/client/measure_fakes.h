// A coordinator that measures, in memory, and what it may have measured.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "client/rpc/measure_client.h"
#include "core/model/description.h"
#include "tests/client/fakes.h"

namespace paceline {

// Answers what the test put in.  Thread-compatible.
class FakeMeasureClient final : public MeasureClient {
 public:
  absl::StatusOr<v1::StartProfileResponse> StartProfile(
      const v1::StartProfileRequest& request) override {
    ordered.push_back(request);
    return started;
  }
  absl::StatusOr<ProfileProgress> GetProfile(int64_t id) override {
    asked.push_back(id);
    if (progress.empty()) return absl::InternalError("no answer is set up");
    absl::StatusOr<ProfileProgress> answer = progress.front();
    if (progress.size() > 1) progress.pop_front();
    return answer;
  }
  absl::StatusOr<Measurements> ListMeasurements(
      const std::string& model) override {
    if (!measurements.ok()) return measurements;
    Measurements found;
    found.links = measurements->links;
    for (const auto& [key, profile] : measurements->profiles) {
      if (model.empty() || key.model == model) {
        found.profiles.emplace(key, profile);
      }
    }
    return found;
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override {
    return workers;
  }

  void AddProfile(const DeviceProfile& profile) {
    measurements->profiles[profile.key] = profile;
  }

  absl::StatusOr<v1::StartProfileResponse> started =
      Parse<v1::StartProfileResponse>(R"(id: 3 workers: "w1" workers: "w2")");
  // Answers in order; the last one stays.
  std::deque<absl::StatusOr<ProfileProgress>> progress;
  absl::StatusOr<Measurements> measurements = Measurements();
  absl::StatusOr<v1::ListWorkersResponse> workers = v1::ListWorkersResponse();

  std::vector<v1::StartProfileRequest> ordered;
  std::vector<int64_t> asked;
};

// Attached workers of these names, each a machine of its own.
inline v1::ListWorkersResponse IdleWorkers(
    const std::vector<std::string>& names) {
  v1::ListWorkersResponse listed;
  for (const std::string& name : names) {
    v1::Worker& worker = *listed.add_workers();
    worker = AWorker(listed.workers_size(), name);
    worker.mutable_registration()->set_machine_id(name);
    worker.mutable_registration()->set_memory_bytes(int64_t{8} << 30);
  }
  return listed;
}

inline JobSpec LenetSpec(int64_t micro_batch) {
  JobSpec spec;
  spec.name = "lenet";
  spec.model.name = "lenet";
  spec.data.name = "synthetic";
  spec.train.micro_batch = micro_batch;
  spec.train.batch = 4 * micro_batch;
  return spec;
}

// Every layer of the spec's model takes `layer_seconds` forward and twice that
// back.
inline DeviceProfile ProfileOf(const JobSpec& spec, const std::string& device,
                               double layer_seconds) {
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  DeviceProfile profile;
  profile.key = {ModelKey(spec.model, spec.data.shape, spec.data.classes),
                 spec.train.micro_batch, "f32", spec.threads, device};
  profile.cpu_capability = "avx2";
  profile.runs = 5;
  profile.frame_seconds = 1e-5;
  for (const Layer& layer : model->layers) {
    const auto batch = static_cast<double>(spec.train.micro_batch);
    profile.layers.push_back(
        {.name = layer.name,
         .kind = MainOperation(layer),
         .forward = {layer_seconds, layer_seconds / 50, layer_seconds},
         .backward = {2 * layer_seconds, layer_seconds / 50, 2 * layer_seconds},
         .update_seconds = 1e-6,
         .flops = layer.forward_flops * batch,
         .output_bytes = layer.output_bytes * spec.train.micro_batch,
         .parameter_bytes = layer.parameter_bytes,
         .kept_bytes = layer.activation_bytes * spec.train.micro_batch});
  }
  return profile;
}

}  // namespace paceline
