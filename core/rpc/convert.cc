#include "core/rpc/convert.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/utf8.h"
#include "core/model/catalog.h"
#include "core/model/data_sets.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// Assigns an optional proto field to the struct's field of the same name, and
// leaves the struct's default where it is absent.
#define PACELINE_TAKE(proto, out, field) \
  if ((proto).has_##field()) (out).field = (proto).field()

// A value that nobody knows becomes kUnspecified, which no parameter may have.
DType DTypeFromProto(v1::DType dtype) {
  return dtype > 0 && dtype < kDTypes ? static_cast<DType>(dtype)
                                      : DType::kUnspecified;
}

template <typename Repeated, typename Vector>
void TakeAll(const Repeated& from, Vector& to) {
  if (!from.empty()) to.assign(from.begin(), from.end());
}

ModelSpec ModelFromProto(const v1::ModelSpec& proto) {
  ModelSpec spec = DefaultModel(proto.name());
  TakeAll(proto.hidden(), spec.hidden);
  PACELINE_TAKE(proto, spec, depth);
  PACELINE_TAKE(proto, spec, width);
  PACELINE_TAKE(proto, spec, heads);
  PACELINE_TAKE(proto, spec, patch);
  PACELINE_TAKE(proto, spec, dropout);
  PACELINE_TAKE(proto, spec, weights);
  PACELINE_TAKE(proto, spec, reset_head);
  PACELINE_TAKE(proto, spec, file);
  spec.script = FromProto(proto.script());
  PACELINE_TAKE(proto, spec, positions);
  PACELINE_TAKE(proto, spec, vocabulary);
  return spec;
}

// Data sets whose samples can have any shape have the one that the model is
// made for.
bool TakesTheModelsShape(const std::string& data_set) {
  return data_set.empty() || data_set == "synthetic" || data_set == "idx";
}

DataSpec DataFromProto(const v1::DataSpec& proto, const std::string& model) {
  DataSpec spec = DefaultDataSpec(proto.name());
  const CatalogEntry* const entry = FindModel(model);
  if (entry != nullptr && TakesTheModelsShape(spec.name)) {
    spec.shape = entry->input;
    spec.classes = entry->classes;
  }
  if (entry != nullptr) spec.padding = entry->padding;
  PACELINE_TAKE(proto, spec, path);
  PACELINE_TAKE(proto, spec, train_samples);
  PACELINE_TAKE(proto, spec, test_samples);
  PACELINE_TAKE(proto, spec, classes);
  PACELINE_TAKE(proto, spec, workers);
  PACELINE_TAKE(proto, spec, crop);
  PACELINE_TAKE(proto, spec, resize);
  PACELINE_TAKE(proto, spec, flip);
  TakeAll(proto.mean(), spec.mean);
  TakeAll(proto.deviation(), spec.deviation);
  PACELINE_TAKE(proto, spec, block);
  PACELINE_TAKE(proto, spec, tokens);
  PACELINE_TAKE(proto, spec, test_fraction);
  PACELINE_TAKE(proto, spec, padding);
  PACELINE_TAKE(proto, spec, vocabulary);
  // Another block, another shape, unless somebody insists.
  if (const SampleFormat format = FormatOf(spec); format.dtype == DType::kI64) {
    spec.shape = format.shape;
  }
  TakeAll(proto.shape(), spec.shape);
  return spec;
}

OptimizerSpec OptimizerFromProto(const v1::OptimizerSpec& proto) {
  OptimizerSpec spec;
  PACELINE_TAKE(proto, spec, name);
  PACELINE_TAKE(proto, spec, momentum);
  PACELINE_TAKE(proto, spec, weight_decay);
  PACELINE_TAKE(proto, spec, beta1);
  PACELINE_TAKE(proto, spec, beta2);
  PACELINE_TAKE(proto, spec, epsilon);
  return spec;
}

LearningRateSpec LearningRateFromProto(const v1::LearningRateSpec& proto) {
  LearningRateSpec spec;
  PACELINE_TAKE(proto, spec, base);
  PACELINE_TAKE(proto, spec, schedule);
  PACELINE_TAKE(proto, spec, warmup_steps);
  PACELINE_TAKE(proto, spec, minimum);
  PACELINE_TAKE(proto, spec, step_every);
  PACELINE_TAKE(proto, spec, gamma);
  return spec;
}

TrainSpec TrainFromProto(const v1::TrainSpec& proto) {
  TrainSpec spec;
  PACELINE_TAKE(proto, spec, epochs);
  PACELINE_TAKE(proto, spec, steps);
  PACELINE_TAKE(proto, spec, batch);
  PACELINE_TAKE(proto, spec, micro_batch);
  PACELINE_TAKE(proto, spec, seed);
  spec.optimizer = OptimizerFromProto(proto.optimizer());
  spec.learning_rate = LearningRateFromProto(proto.learning_rate());
  PACELINE_TAKE(proto, spec, clip_norm);
  PACELINE_TAKE(proto, spec, evaluate_every);
  PACELINE_TAKE(proto, spec, activation_checkpointing);
  return spec;
}

PipelineSpec PipelineFromProto(const v1::PipelineSpec& proto) {
  PipelineSpec spec;
  PACELINE_TAKE(proto, spec, stages);
  PACELINE_TAKE(proto, spec, schedule);
  PACELINE_TAKE(proto, spec, policy);
  TakeAll(proto.cuts(), spec.cuts);
  PACELINE_TAKE(proto, spec, vertical_sync);
  PACELINE_TAKE(proto, spec, codec);
  TakeAll(proto.workers(), spec.workers);
  TakeAll(proto.replicas(), spec.replicas);
  TakeAll(proto.shares(), spec.shares);
  PACELINE_TAKE(proto, spec, replicate);
  return spec;
}

InferSpec InferFromProto(const v1::InferSpec& proto) {
  InferSpec spec;
  PACELINE_TAKE(proto, spec, micro_batch);
  PACELINE_TAKE(proto, spec, samples);
  PACELINE_TAKE(proto, spec, outputs);
  return spec;
}

AggregationSpec AggregationFromProto(const v1::AggregationSpec& proto) {
  AggregationSpec spec;
  PACELINE_TAKE(proto, spec, mode);
  PACELINE_TAKE(proto, spec, members);
  PACELINE_TAKE(proto, spec, rule);
  PACELINE_TAKE(proto, spec, k);
  PACELINE_TAKE(proto, spec, selected);
  PACELINE_TAKE(proto, spec, alpha);
  PACELINE_TAKE(proto, spec, gamma);
  PACELINE_TAKE(proto, spec, rho);
  PACELINE_TAKE(proto, spec, trusted);
  PACELINE_TAKE(proto, spec, shards);
  PACELINE_TAKE(proto, spec, min_parts);
  PACELINE_TAKE(proto, spec, deadline);
  PACELINE_TAKE(proto, spec, codec);
  TakeAll(proto.workers(), spec.workers);
  TakeAll(proto.shares(), spec.shares);
  return spec;
}

FaultSpec FaultFromProto(const v1::FaultSpec& proto) {
  FaultSpec spec;
  spec.worker = proto.worker();
  spec.step = proto.step();
  spec.kind = proto.kind();
  PACELINE_TAKE(proto, spec, steps);
  PACELINE_TAKE(proto, spec, seconds);
  PACELINE_TAKE(proto, spec, scale);
  PACELINE_TAKE(proto, spec, phase);
  return spec;
}

#undef PACELINE_TAKE

void ModelToProto(const ModelSpec& spec, v1::ModelSpec& proto) {
  proto.set_name(spec.name);
  proto.mutable_hidden()->Add(spec.hidden.begin(), spec.hidden.end());
  proto.set_depth(spec.depth);
  proto.set_width(spec.width);
  proto.set_heads(spec.heads);
  proto.set_patch(spec.patch);
  proto.set_dropout(spec.dropout);
  proto.set_weights(spec.weights);
  proto.set_reset_head(spec.reset_head);
  proto.set_file(spec.file);
  *proto.mutable_script() = ToProto(spec.script);
  proto.set_positions(spec.positions);
  proto.set_vocabulary(spec.vocabulary);
}

void DataToProto(const DataSpec& spec, v1::DataSpec& proto) {
  proto.set_name(spec.name);
  proto.set_path(spec.path);
  proto.set_train_samples(spec.train_samples);
  proto.set_test_samples(spec.test_samples);
  proto.mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
  proto.set_classes(spec.classes);
  proto.set_workers(spec.workers);
  proto.set_crop(spec.crop);
  proto.set_resize(spec.resize);
  proto.set_flip(spec.flip);
  proto.mutable_mean()->Add(spec.mean.begin(), spec.mean.end());
  proto.mutable_deviation()->Add(spec.deviation.begin(), spec.deviation.end());
  proto.set_block(spec.block);
  proto.set_tokens(spec.tokens);
  proto.set_test_fraction(spec.test_fraction);
  proto.set_padding(spec.padding);
  proto.set_vocabulary(spec.vocabulary);
}

void OptimizerToProto(const OptimizerSpec& spec, v1::OptimizerSpec& proto) {
  proto.set_name(spec.name);
  proto.set_momentum(spec.momentum);
  proto.set_weight_decay(spec.weight_decay);
  proto.set_beta1(spec.beta1);
  proto.set_beta2(spec.beta2);
  proto.set_epsilon(spec.epsilon);
}

void LearningRateToProto(const LearningRateSpec& spec,
                         v1::LearningRateSpec& proto) {
  proto.set_base(spec.base);
  proto.set_schedule(spec.schedule);
  proto.set_warmup_steps(spec.warmup_steps);
  proto.set_minimum(spec.minimum);
  proto.set_step_every(spec.step_every);
  proto.set_gamma(spec.gamma);
}

void TrainToProto(const TrainSpec& spec, v1::TrainSpec& proto) {
  proto.set_epochs(spec.epochs);
  proto.set_steps(spec.steps);
  proto.set_batch(spec.batch);
  proto.set_micro_batch(spec.micro_batch);
  proto.set_seed(spec.seed);
  OptimizerToProto(spec.optimizer, *proto.mutable_optimizer());
  LearningRateToProto(spec.learning_rate, *proto.mutable_learning_rate());
  proto.set_clip_norm(spec.clip_norm);
  proto.set_evaluate_every(spec.evaluate_every);
  proto.set_activation_checkpointing(spec.activation_checkpointing);
}

void PipelineToProto(const PipelineSpec& spec, v1::PipelineSpec& proto) {
  proto.set_stages(spec.stages);
  proto.set_schedule(spec.schedule);
  proto.set_policy(spec.policy);
  proto.mutable_cuts()->Add(spec.cuts.begin(), spec.cuts.end());
  proto.set_vertical_sync(spec.vertical_sync);
  proto.set_codec(spec.codec);
  proto.mutable_workers()->Add(spec.workers.begin(), spec.workers.end());
  proto.mutable_replicas()->Add(spec.replicas.begin(), spec.replicas.end());
  proto.mutable_shares()->Add(spec.shares.begin(), spec.shares.end());
  proto.set_replicate(spec.replicate);
}

void InferToProto(const InferSpec& spec, v1::InferSpec& proto) {
  proto.set_micro_batch(spec.micro_batch);
  proto.set_samples(spec.samples);
  proto.set_outputs(spec.outputs);
}

void AggregationToProto(const AggregationSpec& spec,
                        v1::AggregationSpec& proto) {
  proto.set_mode(spec.mode);
  proto.set_members(spec.members);
  proto.set_rule(spec.rule);
  proto.set_k(spec.k);
  proto.set_selected(spec.selected);
  proto.set_alpha(spec.alpha);
  proto.set_gamma(spec.gamma);
  proto.set_rho(spec.rho);
  proto.set_trusted(spec.trusted);
  proto.set_shards(spec.shards);
  proto.set_min_parts(spec.min_parts);
  proto.set_deadline(spec.deadline);
  proto.set_codec(spec.codec);
  proto.mutable_workers()->Add(spec.workers.begin(), spec.workers.end());
  proto.mutable_shares()->Add(spec.shares.begin(), spec.shares.end());
}

void FaultToProto(const FaultSpec& spec, v1::FaultSpec& proto) {
  proto.set_worker(spec.worker);
  proto.set_step(spec.step);
  proto.set_kind(spec.kind);
  proto.set_steps(spec.steps);
  proto.set_seconds(spec.seconds);
  proto.set_scale(spec.scale);
  proto.set_phase(spec.phase);
}

// What the gate would add up must be numbers that a gradient can have.
absl::Status CheckNorms(const v1::StepReport& proto) {
  for (int i = 0; i < proto.squared_norms_size(); ++i) {
    const double norm = proto.squared_norms(i);
    if (norm < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "report of stage ", proto.stage(), " step ", proto.step(),
          ": squared_norms[", i, "] is ", norm, ", below 0"));
    }
    if (proto.finite() && !std::isfinite(norm)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "report of stage ", proto.stage(), " step ", proto.step(),
          ": says finite, but squared_norms[", i, "] is ", norm));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ScriptModel FromProto(const v1::ScriptModel& proto) {
  ScriptModel script;
  script.sha256 = proto.sha256();
  TakeAll(proto.input(), script.input);
  script.vocabulary = proto.vocabulary();
  for (const v1::ScriptLayer& from : proto.layers()) {
    ScriptLayer layer;
    layer.name = from.name();
    TakeAll(from.output(), layer.output);
    layer.forward_flops = from.forward_flops();
    layer.activation_bytes = from.activation_bytes();
    layer.writes_input = from.writes_input();
    for (const v1::Parameter& parameter : from.parameters()) {
      layer.parameters.push_back(
          {parameter.name(),
           {parameter.shape().begin(), parameter.shape().end()},
           parameter.trainable(),
           DTypeFromProto(parameter.dtype())});
    }
    script.layers.push_back(std::move(layer));
  }
  return script;
}

v1::ScriptModel ToProto(const ScriptModel& script) {
  v1::ScriptModel proto;
  proto.set_sha256(script.sha256);
  proto.mutable_input()->Add(script.input.begin(), script.input.end());
  proto.set_vocabulary(script.vocabulary);
  for (const ScriptLayer& layer : script.layers) {
    v1::ScriptLayer& to = *proto.add_layers();
    // Names come from a file that may hold any bytes.
    to.set_name(ToUtf8(layer.name, kMaxStatusMessageBytes));
    to.mutable_output()->Add(layer.output.begin(), layer.output.end());
    to.set_forward_flops(layer.forward_flops);
    to.set_activation_bytes(layer.activation_bytes);
    to.set_writes_input(layer.writes_input);
    for (const Parameter& parameter : layer.parameters) {
      v1::Parameter& into = *to.add_parameters();
      into.set_name(ToUtf8(parameter.name, kMaxStatusMessageBytes));
      into.mutable_shape()->Add(parameter.shape.begin(), parameter.shape.end());
      into.set_trainable(parameter.trainable);
      into.set_dtype(static_cast<v1::DType>(parameter.dtype));
    }
  }
  return proto;
}

JobSpec FromProto(const v1::JobSpec& proto) {
  JobSpec spec;
  spec.model = ModelFromProto(proto.model());
  spec.name = proto.name().empty() ? spec.model.name : proto.name();
  spec.data = DataFromProto(proto.data(), spec.model.name);
  spec.train = TrainFromProto(proto.train());
  if (proto.has_kind()) spec.kind = proto.kind();
  spec.infer = InferFromProto(proto.infer());
  if (IsInference(spec)) spec.train = ForInference(spec.infer, spec.train.seed);
  spec.pipeline = PipelineFromProto(proto.pipeline());
  if (proto.has_threads()) spec.threads = proto.threads();
  if (proto.has_cpu_capability()) spec.cpu_capability = proto.cpu_capability();
  if (proto.has_precision()) spec.precision = proto.precision();
  spec.aggregation = AggregationFromProto(proto.aggregation());
  for (const v1::FaultSpec& fault : proto.faults()) {
    spec.faults.push_back(FaultFromProto(fault));
  }
  return spec;
}

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec proto;
  proto.set_name(spec.name);
  ModelToProto(spec.model, *proto.mutable_model());
  DataToProto(spec.data, *proto.mutable_data());
  TrainToProto(spec.train, *proto.mutable_train());
  proto.set_kind(spec.kind);
  InferToProto(spec.infer, *proto.mutable_infer());
  PipelineToProto(spec.pipeline, *proto.mutable_pipeline());
  proto.set_threads(spec.threads);
  proto.set_cpu_capability(spec.cpu_capability);
  proto.set_precision(spec.precision);
  AggregationToProto(spec.aggregation, *proto.mutable_aggregation());
  for (const FaultSpec& fault : spec.faults) {
    FaultToProto(fault, *proto.add_faults());
  }
  return proto;
}

v1::StepReport ToProto(const StepReport& report) {
  v1::StepReport proto;
  proto.set_step(report.step);
  proto.set_stage(report.stage);
  proto.set_result_hash(report.result_hash);
  proto.mutable_squared_norms()->Add(report.squared_norms.begin(),
                                     report.squared_norms.end());
  proto.set_finite(report.finite);
  proto.set_samples(report.samples);
  return proto;
}

absl::StatusOr<StepReport> FromProto(const v1::StepReport& proto) {
  if (proto.step() < 0 || proto.stage() < 0 || proto.samples() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("report with a negative number: step=", proto.step(),
                     " stage=", proto.stage(), " samples=", proto.samples()));
  }
  if (absl::Status status = CheckNorms(proto); !status.ok()) return status;
  StepReport report;
  report.step = proto.step();
  report.stage = proto.stage();
  report.result_hash = proto.result_hash();
  report.squared_norms.assign(proto.squared_norms().begin(),
                              proto.squared_norms().end());
  report.finite = proto.finite();
  report.samples = proto.samples();
  return report;
}

v1::StepVerdict ToProto(const StepVerdict& verdict) {
  v1::StepVerdict proto;
  proto.set_step(verdict.step);
  proto.set_skip(verdict.skip);
  proto.set_why(verdict.why);
  proto.set_gradient_scale(verdict.gradient_scale);
  proto.set_learning_rate(verdict.learning_rate);
  proto.set_bias_correction1(verdict.bias_correction1);
  proto.set_bias_correction2_sqrt(verdict.bias_correction2_sqrt);
  proto.set_gradient_norm(verdict.gradient_norm);
  return proto;
}

StepVerdict FromProto(const v1::StepVerdict& proto) {
  StepVerdict verdict;
  verdict.step = proto.step();
  verdict.skip = proto.skip();
  verdict.why = proto.why();
  verdict.gradient_scale = proto.gradient_scale();
  verdict.learning_rate = proto.learning_rate();
  verdict.bias_correction1 = proto.bias_correction1();
  verdict.bias_correction2_sqrt = proto.bias_correction2_sqrt();
  verdict.gradient_norm = proto.gradient_norm();
  return verdict;
}

}  // namespace paceline
