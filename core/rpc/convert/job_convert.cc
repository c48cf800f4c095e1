#include "core/rpc/convert/job_convert.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

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
#include "core/base/errors.h"
#include "core/rpc/convert/job_convert.gen.inc"

// The step gate adds these up: they must be numbers that a gradient can have.
absl::Status CheckNorms(const v1::StepReport& proto) {
  for (int i = 0; i < proto.squared_norms_size(); ++i) {
    const double norm = proto.squared_norms(i);
    if (norm < 0) {
      return InvalidArgument("report of stage ", proto.stage(), " step ",
                             proto.step(), ": squared_norms[", i, "] is ", norm,
                             ", below 0");
    }
    if (proto.finite() && !std::isfinite(norm)) {
      return InvalidArgument("report of stage ", proto.stage(), " step ",
                             proto.step(), ": says finite, but squared_norms[",
                             i, "] is ", norm);
    }
  }
  return absl::OkStatus();
}

}  // namespace

v1::ScriptModel ToProto(const ScriptModel& script) {
  auto proto = Given<v1::ScriptModel>(script);
  // Names come from a file that may hold any bytes.
  for (v1::ScriptLayer& layer : *proto.mutable_layers()) {
    layer.set_name(ToUtf8(layer.name(), kMaxStatusMessageBytes));
    for (v1::Parameter& parameter : *layer.mutable_parameters()) {
      parameter.set_name(ToUtf8(parameter.name(), kMaxStatusMessageBytes));
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
  Read(proto.model().script(), spec.model.script);
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

absl::StatusOr<StepReport> FromProto(const v1::StepReport& proto) {
  if (proto.step() < 0 || proto.stage() < 0 || proto.samples() < 0) {
    return InvalidArgument("report with a negative number: step=", proto.step(),
                           " stage=", proto.stage(),
                           " samples=", proto.samples());
  }
  if (absl::Status status = CheckNorms(proto); !status.ok()) return status;
  return Taken<StepReport>(proto);
}

}  // namespace paceline
