#include "core/cluster/registration.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/os/host_port.h"

namespace paceline {
namespace {

constexpr size_t kMaxNameBytes = 63;  // a host name's label
constexpr size_t kMaxRepeatedBytes = 64;
constexpr size_t kMaxFieldBytes = 255;  // of everything else
constexpr int kMaxDataDirs = 100;

absl::Status Wrong(absl::string_view field, absl::string_view value,
                   absl::string_view right) {
  return InvalidArgument("registration: ", field, " is '",
                         absl::CHexEscape(value.substr(0, kMaxRepeatedBytes)),
                         "', need ", right);
}

bool IsPlainText(absl::string_view text) {
  return text.size() <= kMaxFieldBytes &&
         absl::c_none_of(
             text, [](unsigned char c) { return absl::ascii_iscntrl(c); });
}

// "host:port" with a port that can be dialled and a host without quotes.
bool IsAddress(const std::string& text) {
  const absl::StatusOr<HostPort> where = ParseHostPort(text);
  return where.ok() && !where->host.empty() && where->port > 0 &&
         IsPlainText(text) && absl::c_all_of(where->host, [](unsigned char c) {
           return absl::ascii_isalnum(c) ||
                  absl::string_view(".-_:%").find(c) != std::string::npos;
         });
}

}  // namespace

std::string WhyNoWorkerName(absl::string_view name, absl::string_view thing) {
  if (!name.empty() && name.size() <= kMaxNameBytes &&
      absl::c_all_of(name, [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
      })) {
    return "";
  }
  // Escapes are up to four bytes each: cut behind them, too.
  std::string text = absl::CHexEscape(name.substr(0, kMaxRepeatedBytes));
  const bool cut = std::max(name.size(), text.size()) > kMaxRepeatedBytes;
  text.resize(std::min(text.size(), kMaxRepeatedBytes));
  return absl::StrCat("a ", thing, "'s name is 1 to ", kMaxNameBytes,
                      " of a-z A-Z 0-9 . _ -, got '", text, cut ? "..." : "",
                      "' (", name.size(), name.size() == 1 ? " byte" : " bytes",
                      ")");
}

absl::Status CheckRegistration(const v1::Registration& registration) {
  const v1::Registration& r = registration;
  if (const std::string why = WhyNoWorkerName(r.name()); !why.empty()) {
    return InvalidArgument("registration: ", why);
  }
  if (r.machine_id().empty() || !IsPlainText(r.machine_id())) {
    return Wrong("machine_id", r.machine_id(), "1 to 255 printable characters");
  }
  if (r.incarnation() == 0) {
    return InvalidArgument(
        "registration: incarnation is 0, need the process's random number");
  }
  if (!IsAddress(r.address())) {
    return Wrong("address", r.address(), "host:port");
  }
  if (!r.http_address().empty() && !IsAddress(r.http_address())) {
    return Wrong("http_address", r.http_address(), "host:port or nothing");
  }
  if (CapabilityRank(r.cpu_capability()) < 0) {
    return Wrong("cpu_capability", r.cpu_capability(),
                 "default, avx2, avx512 or avx512_bf16");
  }
  if (!r.started_for().empty() && CapabilityRank(r.started_for()) < 0) {
    return Wrong("started_for", r.started_for(), "a cpu_capability or nothing");
  }
  for (const std::string* text :
       {&r.cpu_model(), &r.architecture(), &r.version()}) {
    if (!IsPlainText(*text)) {
      return Wrong("cpu_model, architecture or version", *text,
                   "at most 255 printable characters");
    }
  }
  if (r.data_dirs_size() > kMaxDataDirs ||
      !absl::c_all_of(r.data_dirs(), IsPlainText)) {
    return InvalidArgument(
        "registration: data_dirs, which are those of --data-dir, need to be ",
        "at most ", kMaxDataDirs, " of at most ", kMaxFieldBytes,
        " printable characters");
  }
  if (r.memory_bytes() < 0 || r.cores() < 0 || r.pid() < 0 || r.unix_ms() < 0) {
    return InvalidArgument(
        "registration: memory_bytes, cores, pid and unix_ms are ",
        r.memory_bytes(), ", ", r.cores(), ", ", r.pid(), " and ", r.unix_ms(),
        ", need none below 0");
  }
  return absl::OkStatus();
}

void SetDataDirs(const std::vector<std::string>& folders,
                 v1::Registration& registration) {
  for (const std::string& folder : folders) {
    if (registration.data_dirs_size() == kMaxDataDirs) break;
    std::string& text = *registration.add_data_dirs();
    text = ToUtf8(folder, kMaxFieldBytes);
    absl::c_replace_if(
        text, [](unsigned char c) { return absl::ascii_iscntrl(c); }, '?');
  }
}

std::string HostOf(const v1::Registration& registration) {
  const std::string& address = registration.address();
  return address.substr(0, address.rfind(':'));
}

int CapabilityRank(absl::string_view capability) {
  if (capability == "default") return 0;
  if (capability == "avx2") return 1;
  if (capability == "avx512") return 2;
  if (capability == "avx512_bf16") return 3;
  return -1;
}

std::string HighestUseful(absl::string_view precision) {
  return precision == "bf16" ? "avx512_bf16" : "avx512";
}

}  // namespace paceline
