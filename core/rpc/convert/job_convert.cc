#include "core/rpc/convert/job_convert.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/utf8.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// A value that nobody knows becomes kUnspecified, which no parameter may have.
DType DTypeFromProto(v1::DType dtype) {
  return dtype > 0 && dtype < kDTypes ? static_cast<DType>(dtype)
                                      : DType::kUnspecified;
}

template <typename Repeated, typename Vector>
void TakeAll(const Repeated& from, Vector& to) {
  if (!from.empty()) to.assign(from.begin(), from.end());
}

// Data sets whose samples can have any shape have the one that the model is
// made for.
bool TakesTheModelsShape(const std::string& data_set) {
  return data_set.empty() || data_set == "synthetic" || data_set == "idx";
}

// The defaults of a job with this model and these data.
JobSpec Defaults(const std::string& model, const std::string& data) {
  JobSpec spec;
  spec.model = DefaultModel(model);
  spec.data = DefaultDataSpec(data);
  const CatalogEntry* const entry = FindModel(model);
  if (entry == nullptr) return spec;
  if (TakesTheModelsShape(data)) {
    spec.data.shape = entry->input;
    spec.data.classes = entry->classes;
  }
  spec.data.padding = entry->padding;
  return spec;
}

// TakeKeys(), GiveKeys(): each key's value from a message to a struct and back.
#include "core/rpc/convert/job_convert.gen.inc"

// The step gate adds these up: they must be numbers that a gradient can have.
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

v1::Inputs InputsToResume(v1::Inputs inputs, const JobSpec& made,
                          const JobSpec& spec) {
  const auto samples = [](const JobSpec& of) {
    return absl::StrCat(ToProto(of).data().SerializeAsString(), of.train.seed);
  };
  inputs.clear_weights();
  if (samples(made) != samples(spec)) inputs.clear_data();
  return inputs;
}

JobSpec FromProto(const v1::JobSpec& proto) {
  JobSpec spec = Defaults(proto.model().name(), proto.data().name());
  spec.faults.resize(proto.faults_size());
  TakeKeys(proto, spec);
  spec.model.script = FromProto(proto.model().script());
  if (spec.name.empty()) spec.name = spec.model.name;
  // Another block of tokens is another shape, unless somebody insists.
  if (const SampleFormat format = FormatOf(spec.data);
      format.dtype == DType::kI64 && proto.data().shape().empty()) {
    spec.data.shape = format.shape;
  }
  if (IsInference(spec)) {
    spec.train = ForInference(spec.infer, spec.train.seed);
    spec.model.only = kTrainsAll;
  }
  return spec;
}

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec proto;
  for (size_t i = 0; i < spec.faults.size(); ++i) proto.add_faults();
  GiveKeys(spec, proto);
  *proto.mutable_model()->mutable_script() = ToProto(spec.model.script);
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
  proto.set_replica(report.replica);
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
  report.replica = proto.replica();
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
