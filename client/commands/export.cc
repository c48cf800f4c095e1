#include "client/commands/export.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/render/text.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

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
  return absl::FailedPreconditionError(message);
}

absl::Status WriteAll(int file, const std::string& path,
                      absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return CannotWrite(path, errno);
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

// Standard output, a device, a pipe: no second name to hide behind.
class DirectTarget final : public ExportTarget {
 public:
  DirectTarget(int file, std::string path, bool owned)
      : file_(file), path_(std::move(path)), owned_(owned) {}
  ~DirectTarget() override {
    if (owned_) close(file_);
  }

  absl::Status Write(absl::string_view bytes) override {
    return WriteAll(file_, path_, bytes);
  }
  std::string staged_path() const override { return ""; }
  absl::Status Commit() override { return absl::OkStatus(); }

 private:
  const int file_;
  const std::string path_;
  const bool owned_;
};

class FileTarget final : public ExportTarget {
 public:
  FileTarget(int file, std::string path, std::string part)
      : file_(file), path_(std::move(path)), part_(std::move(part)) {}
  ~FileTarget() override {
    if (file_ >= 0) close(file_);
    if (!committed_) unlink(part_.c_str());
  }

  absl::Status Write(absl::string_view bytes) override {
    return WriteAll(file_, path_, bytes);
  }

  std::string staged_path() const override { return part_; }

  absl::Status Commit() override {
    if (fsync(file_) != 0) return CannotWrite(path_, errno);
    const int closed = close(file_);
    file_ = -1;
    if (closed != 0) return CannotWrite(path_, errno);
    if (rename(part_.c_str(), path_.c_str()) != 0) {
      return CannotWrite(path_, errno);
    }
    committed_ = true;
    SyncFolder();
    return absl::OkStatus();
  }

 private:
  // The file is there either way; only its name might not survive a power
  // failure, which is no reason to call the export failed.
  void SyncFolder() const {
    std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    if (folder.empty()) folder = ".";
    const int descriptor = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
  }

  int file_;
  const std::string path_;
  const std::string part_;
  bool committed_ = false;
};

// Through a link to what it points at, so that the link stays one.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const auto resolved = std::filesystem::canonical(path, error);
  return error ? path : resolved.string();
}

// Passes on and watches for Ctrl-C.  Thread-compatible.
class CountingSink final : public ByteSink {
 public:
  CountingSink(ByteSink& sink, Pauser& pauser) : sink_(sink), pauser_(pauser) {}

  absl::Status Write(absl::string_view bytes) override {
    if (pauser_.Sleep(absl::ZeroDuration())) {
      return absl::CancelledError("interrupted; nothing was exported");
    }
    bytes_ += static_cast<int64_t>(bytes.size());
    return sink_.Write(bytes);
  }
  int64_t bytes() const { return bytes_; }

 private:
  ByteSink& sink_;
  Pauser& pauser_;
  int64_t bytes_ = 0;
};

// DataLoss, whatever the reader said: the caller named nothing wrong.
absl::Status CameBroken(int64_t id, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("the result of job ", id,
                                          " did not arrive whole: ", why,
                                          "; nothing was kept, export again"));
}

// Reads `staged` back and makes sure that it is the result of job `id`.
absl::StatusOr<WeightsSummary> Verify(const CommandContext& context,
                                      WeightsFileReader& reader, int64_t id,
                                      const std::string& staged) {
  PACELINE_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(id, 0, 0));
  absl::StatusOr<WeightsSummary> weights = reader.Summarize(staged);
  if (!weights.ok()) return CameBroken(id, weights.status().message());
  if (!job.weights_sha256().empty() &&
      weights->sha256 != job.weights_sha256()) {
    return CameBroken(
        id, absl::StrCat("their sha256 is ", weights->sha256,
                         ", the coordinator's ", job.weights_sha256()));
  }
  return weights;
}

void SayExported(Console& console, int64_t id, const std::string& path,
                 int64_t bytes, const std::optional<WeightsSummary>& weights) {
  const bool to_stdout = path == "-";
  if (!console.table() && !to_stdout) {
    console.Print(Document{
        {"id", id},
        {"path", path},
        {"bytes", bytes},
        {"sha256", weights ? Document(weights->sha256) : Document()},
        {"tensors", weights ? Document(weights->tensors.size()) : Document()}});
    return;
  }
  console.Note(
      absl::StrCat("exported the result of job ", id, " to ",
                   to_stdout ? "standard output" : path, " (",
                   HumanBytes(static_cast<double>(bytes)),
                   weights ? absl::StrCat(", ", weights->tensors.size(),
                                          " tensors, read back and checked)")
                           : ", not checked: it cannot be read back)"));
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

absl::StatusOr<std::unique_ptr<ExportTarget>> OpenExportTarget(
    const std::string& path) {
  if (path == "-") {
    return std::make_unique<DirectTarget>(STDOUT_FILENO, "standard output",
                                          false);
  }
  struct stat status = {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot write ", path, ": it is a folder; name a file in it, as -o ",
        path, path.back() == '/' ? "" : "/", "NAME.safetensors"));
  }
  if (exists && !S_ISREG(status.st_mode)) {
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return CannotWrite(path, errno);
    return std::make_unique<DirectTarget>(file, path, true);
  }
  const std::string target = Resolved(path);
  const std::string part = target + ".part";
  const int file =
      open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
           0666);
  if (file < 0) return CannotWrite(path, errno);
  return std::make_unique<FileTarget>(file, target, part);
}

ExitCode ExportJobCommand(const CommandContext& context,
                          WeightsFileReader& reader, int64_t id,
                          const std::string& path) {
  // A file larger than the limit shall be an error of write(), not the end.
  signal(SIGXFSZ, SIG_IGN);
  auto target = OpenExportTarget(path);
  if (!target.ok()) return ReportError(context.console, target.status());
  CountingSink sink(**target, context.pauser);
  absl::Status exported = context.client.ExportWeights(id, sink);
  std::optional<WeightsSummary> weights;
  if (exported.ok() && !(*target)->staged_path().empty()) {
    auto verified = Verify(context, reader, id, (*target)->staged_path());
    exported = verified.status();
    if (verified.ok()) weights = *std::move(verified);
  }
  if (exported.ok()) exported = (*target)->Commit();
  target->reset();
  if (!exported.ok()) return ReportError(context.console, exported);

  SayExported(context.console, id, path, sink.bytes(), weights);
  return kExitOk;
}

}  // namespace paceline
