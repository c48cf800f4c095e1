#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/job/job.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/job/job_model.h"
#include "core/model/description.h"
#include "core/os/files.h"
#include "core/rpc/convert/job_convert.h"
#include "core/weights/derived.h"

namespace paceline {
namespace {

constexpr char kAdapterFile[] = "adapter_model.safetensors";
constexpr char kAdapterConfig[] = "adapter_config.json";

absl::Status CannotWrite(const std::string& path, int error) {
  std::string message =
      absl::StrCat("cannot write ", path, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    absl::StrAppend(&message,
                    "; make room or choose another place with -o FILE; the "
                    "result is still on the coordinator");
  }
  // Not ResourceExhausted: that is the coordinator's word for "no worker has
  // room".
  return FailedPrecondition(message);
}

// Where an export goes.  Nothing is seen under the name of a file before
// Commit(); dropped without it, nothing is left.  Standard output, a device and
// a pipe have no second name to hide behind.  Thread-compatible.
class ExportTarget {
 public:
  // part: where the bytes of a file stand before Commit(); else empty.
  ExportTarget(int file, std::string path, std::string part)
      : file_(file), path_(std::move(path)), part_(std::move(part)) {}
  ~ExportTarget() {
    if (file_ > STDERR_FILENO) close(file_);
    if (!part_.empty()) unlink(part_.c_str());
  }
  ExportTarget(const ExportTarget&) = delete;

  absl::Status Write(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return CannotWrite(path_, errno);
      bytes.remove_prefix(written);
    }
    return absl::OkStatus();
  }

  // Where the bytes can be read back before Commit(); empty: nowhere.
  const std::string& staged_path() const { return part_; }

  // All bytes are written: makes them durable and puts them in place.
  absl::Status Commit() {
    if (part_.empty()) return absl::OkStatus();
    if (fsync(file_) != 0) return CannotWrite(path_, errno);
    const int closed = close(std::exchange(file_, -1));
    if (closed != 0 || rename(part_.c_str(), path_.c_str()) != 0) {
      return CannotWrite(path_, errno);
    }
    part_.clear();
    // The file is there either way; only its name might not survive a power
    // failure, which is no reason to call the export failed.
    const std::string folder = std::filesystem::path(path_).parent_path();
    SyncFolder(folder.empty() ? "." : folder).IgnoreError();
    return absl::OkStatus();
  }

 private:
  int file_;
  const std::string path_;
  std::string part_;
};

// Through a link to what it points at, so that the link stays one.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const auto resolved = std::filesystem::canonical(path, error);
  return error ? path : resolved.string();
}

// path "-": standard output.  A file: a new one beside it is written, and
// renamed at the end; what was there before stays until then.  A device or a
// pipe is written as it is. Errors: FailedPrecondition  it cannot be written;
// says why
absl::StatusOr<std::unique_ptr<ExportTarget>> OpenExportTarget(
    const std::string& path) {
  if (path == "-") {
    return std::make_unique<ExportTarget>(STDOUT_FILENO, "standard output", "");
  }
  struct stat status = {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    return FailedPrecondition(
        "cannot write ", path, ": it is a folder; name a file in it, as -o ",
        path, path.back() == '/' ? "" : "/", "NAME.safetensors");
  }
  const bool in_place = exists && !S_ISREG(status.st_mode);
  const std::string target = in_place ? path : Resolved(path);
  std::string part;
  const int file = in_place ? open(path.c_str(), O_WRONLY | O_CLOEXEC)
                            : MakeFileBeside(target, 0666, part);
  if (file < 0) return CannotWrite(path, errno);
  return std::make_unique<ExportTarget>(file, target, part);
}

// Always DataLoss: the caller has named nothing wrong.
absl::Status CameBroken(int64_t id, absl::string_view why) {
  return DataLoss("the result of job ", id, " did not arrive whole: ", why,
                  "; nothing was kept, export again");
}

// Reads `staged` back and makes sure that it is the result of job `id`.
//   step  of the checkpoint that it is of; 0: of none
absl::StatusOr<WeightsSummary> Verify(const CommandContext& context,
                                      const ReadWeights& read, int64_t id,
                                      int64_t step, const std::string& staged) {
  PACELINE_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(id, 0, 0));
  absl::StatusOr<WeightsSummary> weights = read(staged);
  if (!weights.ok()) return CameBroken(id, weights.status().message());
  if (step == 0 && !job.weights_sha256().empty() &&
      weights->sha256 != job.weights_sha256()) {
    return CameBroken(
        id, absl::StrCat("their sha256 is ", weights->sha256,
                         ", the coordinator's ", job.weights_sha256()));
  }
  return weights;
}

void SayExported(Console& console, int64_t id, int64_t step,
                 const std::string& path, int64_t bytes,
                 const std::optional<WeightsSummary>& weights) {
  const bool to_stdout = path == "-";
  if (!console.table() && !to_stdout) {
    console.Print(Document{
        {"id", id},
        {"step", OrNull(step)},
        {"path", path},
        {"bytes", bytes},
        {"sha256", weights ? OrNull(weights->sha256) : Document()},
        {"tensors", weights ? Document(weights->tensors.size()) : Document()}});
    return;
  }
  console.Note("exported the ",
               step == 0 ? "result" : absl::StrCat("weights after step ", step),
               " of job ", id, " to ", to_stdout ? "standard output" : path,
               " (", HumanBytes(static_cast<double>(bytes)),
               weights ? absl::StrCat(", ", weights->tensors.size(),
                                      weights->sha256.empty()
                                          ? " tensors, made of a checked file)"
                                          : " tensors, read back and checked)")
                       : ", not checked: it cannot be read back)");
}

// A job whose weights shall be written in a form of adapters.
struct AdaptedJob {
  std::string path;  // of the weights file
  JobSpec spec;
  ModelDescription model;  // of kWhole: empty
};

// Errors: FailedPrecondition  the job has no adapters, or the path no file
absl::StatusOr<AdaptedJob> AdaptedJobOf(const CommandContext& context,
                                        const ExportRequest& request) {
  AdaptedJob job{request.path, {}, {}};
  if (request.form == ExportForm::kWhole) return job;
  const char* const flag =
      request.form == ExportForm::kMerged ? "--merged" : "--adapters";
  PACELINE_ASSIGN_OR_RETURN(const v1::Job found,
                            context.client.GetJob(request.id, 0, 0));
  job.spec = FromProto(found.spec());
  if (job.spec.model.lora.rank == 0 || IsInference(job.spec)) {
    return FailedPrecondition(flag,
                              " is for jobs that train with model.lora; job ",
                              request.id, " has no adapters");
  }
  PACELINE_ASSIGN_OR_RETURN(job.model, DescribeModel(job.spec));
  std::error_code error;
  if (request.form == ExportForm::kAdapters) {
    const bool to_stdout = request.path == "-";
    if (!to_stdout) std::filesystem::create_directories(request.path, error);
    if (to_stdout || error) {
      return FailedPrecondition("cannot write ", request.path, ": ", flag,
                                " needs a folder, as -o my-adapters");
    }
    job.path = std::filesystem::path(request.path) / kAdapterFile;
  } else if (request.path == "-" ||
             (std::filesystem::exists(request.path, error) &&
              !std::filesystem::is_regular_file(request.path, error))) {
    return FailedPrecondition("cannot write ", request.path, ": ", flag,
                              " needs a file, as -o merged.safetensors");
  }
  return job;
}

// A config that PEFT's LoraConfig reads.
std::string AdapterConfig(const AdaptedJob& job) {
  Document targets = Document::array();
  bool in_first = false;
  for (const AdaptedMap& map : AdaptedMapsOf(job.model)) {
    targets.push_back(map.peft_name);
    in_first = in_first || map.in_first;
  }
  const std::string& head = job.model.head;
  const ModelSpec& spec = job.spec.model;
  return Document{{"peft_type", "LORA"},
                  {"task_type", head == "classifier" ? Document("SEQ_CLS")
                                : !job.model.label_shape.empty()
                                    ? Document("CAUSAL_LM")
                                    : Document()},
                  {"base_model_name_or_path", OrNull(spec.weights)},
                  {"r", spec.lora.rank},
                  {"lora_alpha", spec.lora.alpha},
                  {"lora_dropout", 0.0},
                  {"bias", "none"},
                  {"fan_in_fan_out", in_first},
                  {"target_modules", std::move(targets)},
                  {"modules_to_save",
                   head.empty() ? Document() : Document::array({head})},
                  {"inference_mode", true}}
             .dump(2) +
         "\n";
}

absl::StatusOr<SafetensorsLayout> WriteTensors(
    const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata, ExportTarget& target) {
  std::vector<TensorPlace> places;
  for (const NamedTensor& each : tensors) {
    places.push_back({each.name, each.tensor.dtype, each.tensor.shape});
  }
  PACELINE_ASSIGN_OR_RETURN(const SafetensorsLayout layout,
                            LayOut(std::move(places), metadata));
  PACELINE_RETURN_IF_ERROR(target.Write(layout.header));
  for (const NamedTensor& each : tensors) {
    PACELINE_RETURN_IF_ERROR(
        target.Write({reinterpret_cast<const char*>(each.tensor.data.get()),
                      static_cast<size_t>(each.tensor.bytes())}));
  }
  return layout;
}

// Puts a file of the form in the place of the whole one that `target` has
// staged; the caller commits it.
//   weights, bytes  afterwards those of the new file
absl::Status WriteForm(const AdaptedJob& job, ExportForm form,
                       const ReadTensors& read_tensors,
                       std::unique_ptr<ExportTarget>& target,
                       std::optional<WeightsSummary>& weights, int64_t& bytes) {
  PACELINE_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors,
                            read_tensors(target->staged_path()));
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (form == ExportForm::kMerged) {
    PACELINE_ASSIGN_OR_RETURN(tensors,
                              MergeAdapters(job.model, std::move(tensors)));
    metadata = weights->metadata;  // with what only the workers knew
    metadata.merge(MetadataOf(job.model));
    metadata.erase("model.lora.alpha");
  } else {
    tensors = PeftTensors(job.model, tensors);
    PACELINE_ASSIGN_OR_RETURN(
        const auto config,
        OpenExportTarget(
            std::filesystem::path(job.path).replace_filename(kAdapterConfig)));
    PACELINE_RETURN_IF_ERROR(config->Write(AdapterConfig(job)));
    PACELINE_RETURN_IF_ERROR(config->Commit());
  }
  target.reset();  // drops the whole file
  PACELINE_ASSIGN_OR_RETURN(target, OpenExportTarget(job.path));
  PACELINE_ASSIGN_OR_RETURN(const SafetensorsLayout layout,
                            WriteTensors(tensors, metadata, *target));
  bytes = layout.file_bytes;
  weights = WeightsSummary{};
  weights->tensors = layout.tensors;
  return absl::OkStatus();
}

}  // namespace

std::string WhyNoExportFile(const std::string& path) {
  OutputFormat format;
  if (!ParseOutputFormat(path, &format)) return "";
  return absl::StrCat("-o names the file here, and '", path,
                      "' is a form of output: write ./", path,
                      " for a file of that name, and --output ", path,
                      " for how the outcome is printed");
}

absl::Status WriteWeightsFile(
    const std::string& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  PACELINE_ASSIGN_OR_RETURN(const auto target, OpenExportTarget(path));
  PACELINE_RETURN_IF_ERROR(WriteTensors(tensors, metadata, *target).status());
  return target->Commit();
}

Outcome ExportJobCommand(const CommandContext& context, const ReadWeights& read,
                         const ReadTensors& read_tensors,
                         const ExportRequest& request) {
  // A file larger than the limit shall be an error of write(), not the end.
  signal(SIGXFSZ, SIG_IGN);
  PACELINE_ASSIGN_OR_RETURN(const auto job, AdaptedJobOf(context, request));
  PACELINE_ASSIGN_OR_RETURN(auto target, OpenExportTarget(job.path));
  int64_t bytes = 0;
  const auto take = [&](absl::string_view chunk) -> absl::Status {
    if (context.pauser.Sleep(absl::ZeroDuration())) {
      return Cancelled("interrupted; nothing was exported");
    }
    bytes += static_cast<int64_t>(chunk.size());
    return target->Write(chunk);
  };
  PACELINE_ASSIGN_OR_RETURN(const int64_t step,
                            context.client.ExportWeights(request.id, take));
  std::optional<WeightsSummary> weights;
  if (!target->staged_path().empty()) {
    PACELINE_ASSIGN_OR_RETURN(weights, Verify(context, read, request.id, step,
                                              target->staged_path()));
  }
  if (request.form != ExportForm::kWhole) {
    PACELINE_RETURN_IF_ERROR(
        WriteForm(job, request.form, read_tensors, target, weights, bytes));
  }
  PACELINE_RETURN_IF_ERROR(target->Commit());
  SayExported(context.console, request.id, step, job.path, bytes, weights);
  return kExitOk;
}

}  // namespace paceline
