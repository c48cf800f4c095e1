#include "worker/torch/script.h"

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "ATen/ATen.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/data/data_sets.h"
#include "core/os/files.h"
#include "core/transfer/checksum.h"
#include "worker/meters/cpu.h"
#include "worker/torch/allocation_meter.h"
#include "worker/torch/guard.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

template <typename... Parts>
absl::Status Refuse(const std::string& path, const Parts&... why) {
  return InvalidArgument(path, ": ", why...);
}

// Far above any model that small machines train.
constexpr int64_t kMostFileBytes = int64_t{16} << 30;

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<ByteFile> file,
                            ByteFile::Open(path));
  if (file->size() == 0) {
    return Refuse(path,
                  "it is empty: write it again, with "
                  "torch.jit.script(model).save(...)");
  }
  const int64_t memory = MemoryBytes();
  const int64_t most =
      memory > 0 ? std::min(memory, kMostFileBytes) : kMostFileBytes;
  if (file->size() > most) {
    return ResourceExhausted(
        path, ": it has ", file->size(),
        " bytes, and this worker reads at most ", most,
        ", since a script is in memory whole: use a smaller "
        "model");
  }
  std::string bytes(file->size(), '\0');
  PACELINE_RETURN_IF_ERROR(file->ReadAt(
      0,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size())));
  return bytes;
}

absl::StatusOr<torch::jit::Module> Parse(const std::string& path,
                                         const std::string& bytes) {
  try {
    std::istringstream stream(bytes);
    return torch::jit::load(stream, at::Device(at::kCPU));
  } catch (const std::exception&) {
    // LibTorch's message on foreign bytes is about its own insides.
    return Refuse(path,
                  "not a TorchScript file; torch.jit.script(model).save(...) "
                  "writes one, torch.save(...) does not");
  }
}

// "__torch__.torch.nn.modules.container.___torch_mangle_3.Sequential": the
// number tells types of one name apart.
bool IsSequential(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  return name.has_value() && name->name() == "Sequential" &&
         absl::StartsWith(name->qualifiedName(),
                          "__torch__.torch.nn.modules.container.");
}

// Tracing records what one call did: dropout and the like are gone for good.
// It leaves no flag, but a Sequential that was scripted knows its length, and
// arguments of what was traced have a number for a name.
bool IsTraced(const torch::jit::Module& module) {
  if (IsSequential(module) && !module.find_method("__len__")) return true;
  const auto forward = module.find_method("forward");
  if (!forward) return false;
  const auto& arguments = forward->function().getSchema().arguments();
  return arguments.size() > 1 &&
         absl::StartsWith(arguments[1].name(), "argument_");
}

absl::Status CheckRoot(const std::string& path,
                       const torch::jit::Module& root) {
  if (!IsSequential(root)) {
    const auto name = root.type()->name();
    return Refuse(path, "its root is a ",
                  name.has_value() ? name->name() : "module without a name",
                  ", need a torch.nn.Sequential: its children become the "
                  "layers that are placed on workers");
  }
  for (const torch::jit::Module& module : root.modules()) {
    if (!IsTraced(module)) continue;
    return Refuse(path,
                  "it was traced, and what was traced cannot be trained as it "
                  "was meant (dropout, for one, is gone): save "
                  "torch.jit.script(model) instead of torch.jit.trace");
  }
  return absl::OkStatus();
}

absl::Status CheckShared(const std::string& path, const Script& script) {
  std::map<const void*, std::string> owners;
  for (const auto& [name, child] : script.children) {
    for (const ScriptTensor& tensor : TensorsOf(child)) {
      if (tensor.tensor.numel() == 0) continue;
      const auto [owner, is_new] = owners.emplace(
          tensor.tensor.data_ptr(), absl::StrCat(name, ".", tensor.name));
      if (is_new) continue;
      return Refuse(path, owner->second, " and ", name, ".", tensor.name,
                    " are one tensor; layers cannot share parameters, as they "
                    "may be placed on different workers");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Script> LoadScript(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::string bytes,
      Guard(path.c_str(), [&path] { return ReadWhole(path); }));
  Script script;
  Sha256 hash;
  hash.Update(bytes);
  script.sha256 = hash.HexDigest();
  PACELINE_ASSIGN_OR_RETURN(const torch::jit::Module root, Parse(path, bytes));
  return Guard("script", [&]() -> absl::StatusOr<Script> {
    PACELINE_RETURN_IF_ERROR(CheckRoot(path, root));
    for (const auto& child : root.named_children()) {
      script.children.emplace_back(child.name, child.value);
    }
    if (script.children.empty()) return Refuse(path, "its Sequential is empty");
    PACELINE_RETURN_IF_ERROR(CheckShared(path, script));
    return std::move(script);
  });
}

std::vector<ScriptTensor> TensorsOf(const torch::jit::Module& child) {
  std::vector<ScriptTensor> tensors;
  for (const auto& parameter : child.named_parameters()) {
    tensors.push_back(
        {parameter.name, parameter.value, parameter.value.requires_grad()});
  }
  for (const auto& buffer : child.named_buffers()) {
    tensors.push_back({buffer.name, buffer.value, false});
  }
  return tensors;
}

void SetTensor(torch::jit::Module child, const std::string& name,
               const at::Tensor& tensor) {
  std::vector<std::string> path = absl::StrSplit(name, '.');
  const std::string last = std::move(path.back());
  path.pop_back();
  for (const std::string& step : path) child = child.attr(step).toModule();
  child.setattr(last, tensor);
}

at::Tensor RunScript(torch::jit::Module& child, const at::Tensor& input) {
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  const c10::IValue output = child.forward({input});
  TORCH_CHECK(output.isTensor(), "gives no tensor but a ", output.tagKind());
  return output.toTensor();
}

namespace {

constexpr int64_t kSamples = 2;

// Counts two FLOPs a multiply-add of each matrix or kernel [out, ...], once for
// each place of the output.  Right for linear maps and convolutions.
double GuessFlops(const ScriptLayer& layer) {
  double flops = 0;
  for (const Parameter& parameter : layer.parameters) {
    if (parameter.shape.size() < 2 || parameter.shape[0] < 1) continue;
    const double places = static_cast<double>(NumElements(layer.output)) /
                          static_cast<double>(parameter.shape[0]);
    flops += 2.0 * static_cast<double>(NumElements(parameter.shape)) *
             std::max(places, 1.0);
  }
  return flops;
}

absl::StatusOr<std::vector<Parameter>> ParametersOf(
    const std::string& file, const std::string& name,
    const torch::jit::Module& child) {
  std::vector<Parameter> parameters;
  for (const ScriptTensor& found : TensorsOf(child)) {
    const DType dtype = FromTorch(found.tensor.scalar_type());
    if (dtype == DType::kUnspecified ||
        (found.trainable && dtype != DType::kF32)) {
      return Refuse(file, "layer ", name, " has ", found.name, " of dtype ",
                    c10::toString(found.tensor.scalar_type()),
                    "; parameters must be float32");
    }
    parameters.push_back({absl::StrCat(name, ".", found.name),
                          found.tensor.sizes().vec(), found.trainable, dtype});
  }
  return parameters;
}

std::string SamplesText(const at::Tensor& x) {
  return absl::StrCat("samples of shape [",
                      absl::StrJoin(x.sizes().slice(1), ", "), "]",
                      x.is_floating_point() ? "" : " of tokens, int64");
}

// Runs one child as training would, and says what came out.
absl::StatusOr<ScriptLayer> Try(const std::string& file,
                                const std::string& name,
                                torch::jit::Module child, at::Tensor& x) {
  ScriptLayer layer;
  layer.name = name;
  PACELINE_ASSIGN_OR_RETURN(layer.parameters, ParametersOf(file, name, child));
  child.train(true);
  const at::Tensor leaf = x.detach().set_requires_grad(x.is_floating_point());
  const at::Tensor input = leaf.clone();
  const auto version = input._version();
  const AllocationMeter meter(/*enabled=*/true);
  at::Tensor output;
  try {
    output = RunScript(child, input);
  } catch (const c10::Error& error) {
    return Refuse(file, "layer ", name, " cannot take ", SamplesText(x), ": ",
                  error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Refuse(file, "layer ", name, " cannot take ", SamplesText(x), ": ",
                  error.what());
  }
  output = output.contiguous();
  if (output.scalar_type() != at::kFloat || output.dim() < 2 ||
      output.size(0) != kSamples) {
    return Refuse(file, "layer ", name, " gives a tensor [",
                  absl::StrJoin(output.sizes(), ", "), "] of ",
                  c10::toString(output.scalar_type()), " for ", kSamples,
                  " samples; need float32 [", kSamples, ", ...]");
  }
  layer.writes_input = input._version() != version;
  layer.output = output.sizes().slice(1).vec();
  const int64_t input_bytes = x.numel() * x.element_size();
  layer.activation_bytes =
      (std::max<int64_t>(meter.live_bytes(), 0) + input_bytes) / kSamples;
  layer.forward_flops = GuessFlops(layer);
  x = output.detach();
  return layer;
}

}  // namespace

absl::StatusOr<ScriptModel> ReadScript(const JobSpec& spec) {
  const std::string& file = spec.model.file;
  PACELINE_ASSIGN_OR_RETURN(const Script script, LoadScript(file));
  return Guard("script", [&]() -> absl::StatusOr<ScriptModel> {
    ScriptModel model;
    model.sha256 = script.sha256;
    const SampleFormat format = FormatOf(spec.data);
    model.input = format.shape;
    model.vocabulary = VocabularyOf(spec.data);
    const Shape shape = Batched(kSamples, model.input);
    at::Tensor x = model.vocabulary > 0
                       ? at::full(shape, model.vocabulary - 1, at::kLong)
                       : at::zeros(shape);
    for (const auto& [name, child] : script.children) {
      PACELINE_ASSIGN_OR_RETURN(model.layers.emplace_back(),
                                Try(file, name, child, x));
    }
    return model;
  });
}

}  // namespace paceline
