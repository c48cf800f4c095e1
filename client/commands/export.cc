#include "client/commands/export.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/render/text.h"
#include "core/base/errors.h"
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
  std::string part_;
};

// Through a link to what it points at, so that the link stays one.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const auto resolved = std::filesystem::canonical(path, error);
  return error ? path : resolved.string();
}

// path "-": standard output.  A file: written beside it as PATH.part, renamed
// at the end; what was there before stays until then.  A device or a pipe is
// written as it is.
// Errors: FailedPrecondition  it cannot be written; says why
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
  const std::string part = in_place ? "" : target + ".part";
  const int file =
      in_place
          ? open(path.c_str(), O_WRONLY | O_CLOEXEC)
          : open(part.c_str(),
                 O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return CannotWrite(path, errno);
  return std::make_unique<ExportTarget>(file, target, part);
}

// DataLoss, whatever the reader said: the caller named nothing wrong.
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
        {"sha256", weights ? Document(weights->sha256) : Document()},
        {"tensors", weights ? Document(weights->tensors.size()) : Document()}});
    return;
  }
  console.Note("exported the ",
               step == 0 ? "result" : absl::StrCat("weights after step ", step),
               " of job ", id, " to ", to_stdout ? "standard output" : path,
               " (", HumanBytes(static_cast<double>(bytes)),
               weights ? absl::StrCat(", ", weights->tensors.size(),
                                      " tensors, read back and checked)")
                       : ", not checked: it cannot be read back)");
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

ExitCode ExportJobCommand(const CommandContext& context,
                          const ReadWeights& read, int64_t id,
                          const std::string& path) {
  // A file larger than the limit shall be an error of write(), not the end.
  signal(SIGXFSZ, SIG_IGN);
  auto target = OpenExportTarget(path);
  if (!target.ok()) return ReportError(context.console, target.status());
  int64_t bytes = 0;
  const auto take = [&](absl::string_view chunk) -> absl::Status {
    if (context.pauser.Sleep(absl::ZeroDuration())) {
      return absl::CancelledError("interrupted; nothing was exported");
    }
    bytes += static_cast<int64_t>(chunk.size());
    return (*target)->Write(chunk);
  };
  const auto step = context.client.ExportWeights(id, take);
  absl::Status exported = step.status();
  std::optional<WeightsSummary> weights;
  if (exported.ok() && !(*target)->staged_path().empty()) {
    auto verified = Verify(context, read, id, *step, (*target)->staged_path());
    exported = verified.status();
    if (verified.ok()) weights = *std::move(verified);
  }
  if (exported.ok()) exported = (*target)->Commit();
  target->reset();
  if (!exported.ok()) return ReportError(context.console, exported);
  SayExported(context.console, id, *step, path, bytes, weights);
  return kExitOk;
}

}  // namespace paceline
