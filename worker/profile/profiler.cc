#include "worker/profile/profiler.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/base/statistics.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/job/job_model.h"
#include "core/optim/step_gate.h"
#include "core/os/files.h"
#include "core/plan/inputs.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"
#include "worker/control/run_order.h"
#include "worker/meters/cpu.h"

namespace paceline {
namespace {

// Readings of one thing.
struct Samples {
  std::vector<double> wall;
  std::vector<double> cpu;

  MeasuredSeconds Summary() const {
    if (wall.empty()) return {};
    std::vector<double> sorted = wall;
    absl::c_sort(sorted);
    return {Quantile(sorted, 0.5),
            (Quantile(sorted, 0.75) - Quantile(sorted, 0.25)) / 2, Mean(cpu)};
  }
};

struct LayerSamples {
  Samples forward;
  Samples backward;
  int64_t kept_bytes = 0;
};

Tensor RandomFloats(const Shape& shape, uint64_t seed) {
  Tensor tensor = Tensor::Allocate(DType::kF32, shape);
  SplitMix64 random(seed);
  for (float& value : tensor.As<float>()) value = random.Unit() - 0.5f;
  return tensor;
}

// Images [samples, channels, height, width], smooth and half empty as real ones
// are: a max-pooling branches, and takes a third longer over noise.  Over these
// it takes as long as over Fashion-MNIST.
Tensor RandomImages(const Shape& shape, uint64_t seed) {
  constexpr int64_t kPatches = 4;  // a side
  constexpr float kTexture = 0.5f;
  Tensor tensor = Tensor::Allocate(DType::kF32, shape);
  const int64_t height = shape[2];
  const int64_t width = shape[3];
  SplitMix64 random(seed);
  const absl::Span<float> values = tensor.As<float>();
  for (size_t plane = 0; plane < values.size(); plane += height * width) {
    float corners[kPatches + 1][kPatches + 1];
    for (auto& row : corners) {
      for (float& corner : row) corner = random.Unit() - 0.5f;
    }
    for (int64_t y = 0; y < height; ++y) {
      const float down = static_cast<float>(y * kPatches) / height;
      const auto above = static_cast<int64_t>(down);
      for (int64_t x = 0; x < width; ++x) {
        const float along = static_cast<float>(x * kPatches) / width;
        const auto left = static_cast<int64_t>(along);
        const float* const upper = &corners[above][left];
        const float* const lower = &corners[above + 1][left];
        const float right = along - left;
        const float top = upper[0] + right * (upper[1] - upper[0]);
        const float bottom = lower[0] + right * (lower[1] - lower[0]);
        const float value = top + (down - above) * (bottom - top);
        const float texture = kTexture * (random.Unit() - 0.5f);
        values[plane + y * width + x] =
            value > 0 ? std::max(0.0f, value + texture) : 0.0f;
      }
    }
  }
  return tensor;
}

// Labels or tokens, below `end`.
Tensor RandomNumbers(const Shape& shape, int64_t end, uint64_t seed) {
  Tensor tensor = Tensor::Allocate(DType::kI64, shape);
  SplitMix64 random(seed);
  for (int64_t& value : tensor.As<int64_t>()) {
    value = static_cast<int64_t>(random.Next() % end);
  }
  return tensor;
}

// An image, floats, tokens, or a mask that hides nothing.
Tensor RandomTensor(const SampleTensor& sample, int64_t samples,
                    int64_t vocabulary, uint64_t seed) {
  const Shape shape = Batched(samples, sample.shape);
  if (sample.dtype == DType::kF32 && shape.size() == 4) {
    return RandomImages(shape, seed);
  }
  if (sample.dtype == DType::kF32) return RandomFloats(shape, seed);
  if (sample.dtype == DType::kI64) {
    return RandomNumbers(shape, vocabulary, seed);
  }
  Tensor mask = Tensor::Allocate(sample.dtype, shape);
  std::memset(mask.data.get(), 1, mask.bytes());
  return mask;
}

// Measures one range of layers in one engine.
class RangeProfiler {
 public:
  RangeProfiler(const JobSpec& spec, const ModelDescription& model,
                LayerRange layers, const ProfilerParts& parts)
      : spec_(spec),
        model_(model),
        layers_(layers),
        parts_(parts),
        samples_(layers.last - layers.first) {}

  absl::Status Run(const ProfilerOptions& options) {
    const int layers = static_cast<int>(model_.layers.size());
    EngineOptions engine;
    engine.model = model_;
    engine.layers = layers_;
    engine.train = spec_.train;
    // Recomputation in a backward repeats a forward that is measured already.
    engine.train.activation_checkpointing = "none";
    engine.precision = PrecisionOf(spec_.precision);
    engine.stage = layers_.first == 0 ? 0 : 1;
    engine.stages = engine.stage + (layers_.last == layers ? 1 : 2);
    engine.on_layer = [this](const LayerDone& done) { OnLayer(done); };
    PACELINE_ASSIGN_OR_RETURN(engine_, parts_.make_engine(engine));

    const int64_t samples = spec_.train.micro_batch;
    batch_.micro_batches = options.step_runs;
    batch_.samples = samples * options.step_runs;
    for (const SampleTensor& sample : InputTensors(model_, layers_.first)) {
      input_.push_back(RandomTensor(sample, samples, model_.vocabulary, 1));
    }
    input_.push_back(
        RandomNumbers(Batched(samples, model_.label_shape), model_.classes, 2));
    if (layers_.last < layers) {
      for (const SampleTensor& sample :
           GradientTensors(model_.layers[layers_.last - 1])) {
        gradient_.push_back(RandomFloats(Batched(samples, sample.shape), 3));
      }
    }
    for (int run = 0; run < options.warm_up_steps * options.step_runs; ++run) {
      PACELINE_RETURN_IF_ERROR(parts_.cancel.status());
      PACELINE_RETURN_IF_ERROR(RunOnce(run));
    }
    keep_ = true;
    const Instant begin = parts_.clock.Now();
    for (int run = 0; run < options.most_runs; ++run) {
      if (run >= options.least_runs &&
          parts_.clock.Now() - begin >= options.budget) {
        break;
      }
      PACELINE_RETURN_IF_ERROR(parts_.cancel.status());
      PACELINE_RETURN_IF_ERROR(RunOnce(run));
    }
    return absl::OkStatus();
  }

  // Adds the layers and the runs to `profile`.
  void Write(DeviceProfile& profile) const {
    profile.runs = static_cast<int32_t>(samples_[0].forward.wall.size());
    const double update = Median(updates_);
    int64_t trained_bytes = 0;
    for (int i = layers_.first; i < layers_.last; ++i) {
      trained_bytes += WeightBytesOf(model_.layers[i]).own;
    }
    for (int i = layers_.first; i < layers_.last; ++i) {
      const Layer& layer = model_.layers[i];
      const LayerSamples& samples = samples_[i - layers_.first];
      LayerMeasurement& measured = profile.layers.emplace_back();
      measured.name = layer.name;
      measured.kind = ProfileKind(layer);
      measured.forward = samples.forward.Summary();
      measured.backward = samples.backward.Summary();
      if (trained_bytes > 0) {
        measured.update_seconds =
            update * static_cast<double>(WeightBytesOf(layer).own) /
            static_cast<double>(trained_bytes);
      }
      const int64_t micro_batch = spec_.train.micro_batch;
      measured.flops = layer.forward_flops * static_cast<double>(micro_batch);
      measured.output_bytes = layer.output_bytes * micro_batch;
      measured.parameter_bytes = layer.parameter_bytes;
      measured.kept_bytes = samples.kept_bytes > 0
                                ? samples.kept_bytes
                                : layer.activation_bytes * micro_batch;
    }
  }

  // Times of all layers in all runs.
  MeasuredSeconds Total() const {
    MeasuredSeconds total;
    for (const LayerSamples& layer : samples_) {
      for (const Samples* const samples : {&layer.forward, &layer.backward}) {
        total.wall += absl::c_accumulate(samples->wall, 0.0);
        total.cpu += absl::c_accumulate(samples->cpu, 0.0);
      }
    }
    return total;
  }

 private:
  // The time since the last call.  One reading ends a layer and begins the
  // next: a quota stops a thread where it enters the kernel, which is in these
  // very calls, and what passes between two readings would be lost.
  MeasuredSeconds Lap() {
    const absl::Duration cpu = parts_.thread_cpu();
    const Instant now = parts_.clock.Now();
    return {.wall = absl::ToDoubleSeconds(now - std::exchange(wall_, now)),
            .cpu = absl::ToDoubleSeconds(cpu - std::exchange(cpu_, cpu))};
  }

  void OnLayer(const LayerDone& done) {
    const MeasuredSeconds lap = Lap();
    LayerSamples& layer = samples_[done.layer - layers_.first];
    if (keep_) {
      Samples& samples = done.backward ? layer.backward : layer.forward;
      samples.wall.push_back(lap.wall);
      samples.cpu.push_back(lap.cpu);
      if (!done.backward && done.live_bytes >= 0) {
        layer.kept_bytes = std::max<int64_t>(0, done.live_bytes - live_bytes_);
      }
    }
    live_bytes_ = done.live_bytes;
  }

  absl::Status RunOnce(int run) {
    const int micro_batch = run % batch_.micro_batches;
    live_bytes_ = 0;
    Lap();
    PACELINE_ASSIGN_OR_RETURN(const ForwardResult forward,
                              engine_->Forward(batch_, micro_batch, input_));
    // The work after the last layer (the loss) counts for the last layer.
    const MeasuredSeconds loss = Lap();
    if (keep_) {
      Samples& last = samples_.back().forward;
      last.wall.back() += loss.wall;
      last.cpu.back() += loss.cpu;
    }
    PACELINE_RETURN_IF_ERROR(
        engine_->Backward(batch_, micro_batch, gradient_).status());
    return micro_batch + 1 < batch_.micro_batches ? absl::OkStatus() : Update();
  }

  absl::Status Update() {
    Lap();
    PACELINE_ASSIGN_OR_RETURN(const StepReport report, engine_->Report(batch_));
    StepVerdict verdict;
    verdict.step = report.step;
    verdict.gradient_scale = 1.0f / static_cast<float>(batch_.samples);
    // Too small to change a value, and so the runs stay alike.
    verdict.learning_rate = 1e-20f;
    verdict.bias_correction1 = 1;
    verdict.bias_correction2_sqrt = 1;
    PACELINE_RETURN_IF_ERROR(engine_->Apply(verdict));
    // One thread's own time, which no quota and no other process stretches.
    const MeasuredSeconds lap = Lap();
    if (keep_) updates_.push_back(spec_.threads == 1 ? lap.cpu : lap.wall);
    return absl::OkStatus();
  }

  const JobSpec& spec_;
  const ModelDescription& model_;
  const LayerRange layers_;
  const ProfilerParts& parts_;

  std::unique_ptr<StageEngine> engine_;
  BatchInfo batch_;
  TensorList input_;
  TensorList gradient_;  // empty where the model ends
  Instant wall_;         // of the last Lap()
  absl::Duration cpu_;
  int64_t live_bytes_ = 0;
  bool keep_ = false;  // false: warming up
  std::vector<LayerSamples> samples_;
  std::vector<double> updates_;
};

// Runs of layers that fit, as long as they can be.
absl::StatusOr<std::vector<LayerRange>> RangesThatFit(
    const JobSpec& spec, const ModelDescription& model, int64_t memory_bytes) {
  const int layers = static_cast<int>(model.layers.size());
  std::vector<LayerRange> ranges;
  for (int first = 0; first < layers;) {
    LayerRange range = {first, first + 1};
    const auto needs = [&](int last) {
      TrainSpec train = spec.train;
      train.activation_checkpointing = "none";
      return EstimateBytes(model, train, {{first, last}}, {{1}},
                           PrecisionOf(spec.precision));
    };
    if (memory_bytes > 0 && needs(range.last) > memory_bytes) {
      return ResourceExhausted("layer ", model.layers[first].name, " needs ",
                               BytesText(needs(range.last)),
                               ", this worker has ", BytesText(memory_bytes),
                               ": use a smaller micro-batch");
    }
    while (range.last < layers &&
           (memory_bytes <= 0 || needs(range.last + 1) <= memory_bytes)) {
      ++range.last;
    }
    ranges.push_back(range);
    first = range.last;
  }
  return ranges;
}

}  // namespace

absl::StatusOr<DeviceProfile> ProfileLayers(const JobSpec& spec,
                                            const ModelDescription& model,
                                            int64_t memory_bytes,
                                            const ProfilerOptions& options,
                                            const ProfilerParts& parts) {
  PACELINE_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                            RangesThatFit(spec, model, memory_bytes));
  DeviceProfile profile;
  double wall = 0, cpu = 0;
  for (const LayerRange& range : ranges) {
    RangeProfiler profiler(spec, model, range, parts);
    PACELINE_RETURN_IF_ERROR(profiler.Run(options));
    profiler.Write(profile);
    const MeasuredSeconds total = profiler.Total();
    wall += total.wall;
    cpu += total.cpu;
  }
  if (wall > 0 && cpu < kFreeShare * wall) profile.cpu_share = cpu / wall;
  return profile;
}

double MeasurePausePeriod(const Clock& clock) {
  constexpr absl::Duration kBusy = absl::Milliseconds(250);
  constexpr absl::Duration kPause = absl::Microseconds(500);
  constexpr int kLeastPauses = 8;
  int pauses = 0;
  const Instant begin = clock.Now();
  Instant last = begin;
  while (last - begin < kBusy) {
    const Instant now = clock.Now();
    pauses += now - last >= kPause;
    last = now;
  }
  if (pauses < kLeastPauses) return 0;
  return absl::ToDoubleSeconds(last - begin) / pauses;
}

namespace {

absl::StatusOr<DeviceProfile> MeasureLayers(const JobSpec& spec,
                                            const MeasureParts& parts,
                                            const CancelToken& cancel) {
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  parts.factory.SetThreads(spec.threads);

  PACELINE_ASSIGN_OR_RETURN(
      DeviceProfile profile,
      ProfileLayers(spec, model, parts.memory_bytes, ProfilerOptions(),
                    {[&parts](const EngineOptions& options) {
                       return parts.factory.MakeEngine(options);
                     },
                     parts.clock, ThreadCpuTime, cancel}));
  profile.key = {ModelKey(spec.model, spec.data.shape, spec.data.classes),
                 spec.train.micro_batch, ProfileDType(spec.precision),
                 spec.threads, parts.name};
  profile.cpu_capability = parts.cpu_capability;
  profile.cpu_model = parts.cpu_model;
  const double period = MeasurePausePeriod(parts.clock);
  // Threads of a pool compute beside this one: its own CPU time says nothing.
  const bool stopped = profile.cpu_share < 1 && period > 0 && spec.threads == 1;
  profile.quota_period_seconds = stopped ? period : 0;
  if (!stopped) profile.cpu_share = 1;
  PACELINE_ASSIGN_OR_RETURN(const FrameCost frames,
                            parts.prober->MeasureFrames(cancel));
  profile.frame_seconds = frames.seconds;
  profile.frame_seconds_per_byte = frames.seconds_per_byte;
  profile.gate_seconds = frames.gate_seconds;
  profile.measured_unix_ms = absl::ToUnixMillis(parts.clock.Today());
  return profile;
}

// Larger files are read when their job begins and not before: a worker that
// looks into files can have no job meanwhile.
constexpr int64_t kMostLookedInto = int64_t{256} << 20;

// The size of a file, or of all that are right in a folder.
int64_t BytesAt(const std::string& path) {
  int64_t bytes = 0;
  if (const auto entries = ListFolder(path); entries.ok()) {
    for (const FolderEntry& entry : *entries) bytes += entry.bytes;
  } else if (const auto file = ByteFile::Open(path); file.ok()) {
    bytes = (*file)->size();
  }
  return bytes;
}

void AddMissing(const std::string& path, absl::string_view why,
                v1::Measurement& measurement) {
  v1::MissingFile& missing = *measurement.add_missing();
  missing.set_path(path);
  missing.set_why(ToUtf8(why, kMaxNoteBytes));
}

// Opens what a job would open, and says what is wrong with it or worth a note.
// A file that cannot be read is not opened again.
void LookInto(const v1::MeasureFiles& order, RunFactory& factory,
              const CancelToken& cancel, v1::Measurement& measurement) {
  const JobSpec spec = FromProto(order.spec());
  if (!CheckSpecOfOrder(spec).ok()) return;
  // A script may be one that no worker has looked into.
  const absl::StatusOr<ModelDescription> model = DescribeModel(spec);
  v1::Inputs read;
  const auto look = [&](const std::string& path,
                        absl::FunctionRef<absl::Status()> open) {
    const auto& missing = measurement.missing();
    if (path.empty() || !cancel.status().ok() ||
        absl::c_any_of(missing, [&](const v1::MissingFile& each) {
          return each.path() == path;
        })) {
      return;
    }
    absl::Status status = open();
    status.Update(CheckInputs(read, order.inputs(), spec));
    if (status.ok()) return;
    AddMissing(path, status.message(), measurement);
  };
  const auto note = [&](const std::vector<std::string>& notes) {
    measurement.mutable_notes()->Add(notes.begin(), notes.end());
  };
  const auto is_large = [&](const std::string& path) {
    const int64_t bytes = BytesAt(path);
    if (bytes <= kMostLookedInto) return false;
    note({absl::StrCat(path, ": has ", BytesText(bytes),
                       ", which are looked into when the job begins")});
    return true;
  };
  const auto weigh = [&](const ModelSpec& of, const ModelDescription& described,
                         WeightsOrigin& origin) {
    const auto weights = factory.ReadWeights(of, described, {0, 0}, origin);
    note(origin.notes);
    return weights.status();
  };
  WeightsOrigin origin;
  if (model.ok()) {
    look(spec.model.weights, [&] { return weigh(spec.model, *model, origin); });
  }
  if (model.ok() && model->teacher != nullptr) {
    look(spec.train.distill.weights, [&]() -> absl::Status {
      WeightsOrigin of_teacher;
      PACELINE_RETURN_IF_ERROR(
          weigh(TeacherOf(spec), *model->teacher, of_teacher));
      if (order.inputs().teacher() == 0 ||
          is_large(spec.train.distill.weights)) {
        return absl::OkStatus();
      }
      PACELINE_ASSIGN_OR_RETURN(
          const uint64_t teacher,
          factory.FingerprintOf(spec.train.distill.weights));
      read.set_teacher(teacher);
      return absl::OkStatus();
    });
  }
  look(FilesOf(spec.data), [&]() -> absl::Status {
    const DataSetTraits& set = *FindDataSet(spec.data.name);
    const bool reads_all = set.kind != SampleKind::kImages || set.in_memory;
    if (reads_all && is_large(FilesOf(spec.data))) return absl::OkStatus();
    PACELINE_ASSIGN_OR_RETURN(const auto source, factory.OpenData(spec, {}));
    const DataFacts facts = source->Facts();
    note(facts.notes);
    PACELINE_ASSIGN_OR_RETURN(
        const uint64_t data,
        source->Fingerprint(IsInference(spec) ? BatchPhase::kEvaluate
                                              : BatchPhase::kTrain));
    read.set_data(data);
    read.set_contents(facts.contents);
    return CheckClasses(origin, facts.classes, spec.model);
  });
  CleanNotes(*measurement.mutable_notes());
}

absl::Status Fill(const v1::MeasureOrder& order, const MeasureParts& parts,
                  const CancelToken& cancel, v1::Measurement& measurement) {
  for (const std::string& path : order.files().paths()) {
    const absl::Status readable = CheckReadable(path);
    if (readable.ok()) continue;
    absl::string_view why = readable.message();
    absl::ConsumePrefix(&why, "cannot open ");
    absl::ConsumePrefix(&why, absl::StrCat(path, ": "));
    AddMissing(path, why, measurement);
  }
  if (order.has_files()) {
    if (order.files().has_spec()) {
      LookInto(order.files(), parts.factory, cancel, measurement);
    }
    return cancel.status();
  }
  if (parts.prober == nullptr) {
    return Unimplemented("this worker cannot measure");
  }
  if (order.has_link()) {
    PACELINE_ASSIGN_OR_RETURN(
        LinkMeasurement link,
        parts.prober->ProbeLink(parts.name, order.link(), cancel));
    link.measured_unix_ms = absl::ToUnixMillis(parts.clock.Today());
    *measurement.add_links() = ToProto(link);
    return absl::OkStatus();
  }
  const JobSpec spec = FromProto(order.layers().spec());
  PACELINE_RETURN_IF_ERROR(CheckSpecOfOrder(spec));
  if (NeedsWorker(spec.model)) {
    parts.factory.SetThreads(spec.threads);
    PACELINE_ASSIGN_OR_RETURN(const ScriptModel script,
                              parts.factory.ReadScript(spec));
    *measurement.mutable_script() = ToProto(script);
    return absl::OkStatus();
  }
  PACELINE_ASSIGN_OR_RETURN(const DeviceProfile profile,
                            MeasureLayers(spec, parts, cancel));
  *measurement.mutable_profile() = ToProto(profile);
  return absl::OkStatus();
}

}  // namespace

v1::Measurement CarryOut(const v1::MeasureOrder& order,
                         const MeasureParts& parts, const CancelToken& cancel) {
  v1::Measurement measurement;
  measurement.set_id(order.id());
  SetError(Fill(order, parts, cancel, measurement), measurement);
  return measurement;
}

}  // namespace paceline
