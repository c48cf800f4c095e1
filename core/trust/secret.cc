#include "core/trust/secret.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/os/files.h"
#include "core/os/host_port.h"
#include "core/trust/certificates.h"

namespace paceline {
namespace {

constexpr int kDrawnBytes = 32;
constexpr size_t kLeastBytes = 16;
constexpr int64_t kMostBytes = 512;

// Set once, before threads use it.
std::string& ProcessSecret() {
  static auto* const secret = new std::string;
  return *secret;
}

}  // namespace

absl::Status MakeSecret(const std::string& path) {
  return WriteFileAtomically(path, RandomHex(kDrawnBytes) + "\n", 0600);
}

absl::Status UseSecret(const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return InvalidArgument(path, " is no file");
  }
  if ((about.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return InvalidArgument("every user of this machine may read or write ",
                           path, ": chmod 600 it, and write a new secret");
  }
  const auto text = ReadFile(path, kMostBytes);
  if (!text.ok()) return InvalidArgument(text.status().message());
  std::string secret(absl::StripAsciiWhitespace(*text));
  const bool is_one_word = std::ranges::all_of(
      secret, [](char c) { return absl::ascii_isgraph(c); });
  if (secret.size() < kLeastBytes || !is_one_word) {
    return InvalidArgument(path, " must hold one word of ", kLeastBytes,
                           " characters and more, such as 'openssl rand -hex "
                           "32' gives");
  }
  ProcessSecret() = std::move(secret);
  return absl::OkStatus();
}

std::string SecretLink(const std::string& coordinator) {
  const std::string folder = UserStateFolder();
  const auto where = ParseHostPort(coordinator);
  if (folder.empty() || !where.ok() || !IsLoopback(where->host)) return "";
  return absl::StrCat(folder, "/meshes/", where->port);
}

absl::Status UseSecretOf(const std::string& coordinator,
                         const std::string& named) {
  if (!named.empty()) return UseSecret(named);
  const std::string link = SecretLink(coordinator);
  struct stat about = {};
  return stat(link.c_str(), &about) == 0 ? UseSecret(link) : absl::OkStatus();
}

const std::string& UsedSecret() { return ProcessSecret(); }

std::string ExchangeSecret(std::string secret) {
  return std::exchange(ProcessSecret(), std::move(secret));
}

bool IsUsedSecret(absl::string_view shown) {
  const std::string& secret = ProcessSecret();
  if (shown.size() != secret.size()) return false;
  unsigned char apart = 0;
  for (size_t i = 0; i < secret.size(); ++i) {
    apart |= static_cast<unsigned char>(shown[i] ^ secret[i]);
  }
  return apart == 0;
}

}  // namespace paceline
