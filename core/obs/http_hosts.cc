#include "core/obs/http_hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/os/host_port.h"
#include "core/os/steady_wait.h"

namespace paceline {
namespace {

std::string Normal(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StripSuffix(name, "."));
}

bool IsAddress(const std::string& host) {
  in6_addr address;
  const std::string without_scope = host.substr(0, host.find('%'));
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, without_scope.c_str(), &address) == 1;
}

// This machine's name.
std::string OwnHost() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return Normal(name);
}

// This machine's name with its domain.  Thread-safe.
class FullName {
 public:
  // As the resolver has said last; empty: it has not.  Asks it again, if that
  // is due, and does not wait: the threads that call this are few, and any
  // client has them ask.
  std::string Get() {
    absl::MutexLock lock(&mutex_);
    const int result = asked_ ? gai_error(&question_) : EAI_INPROGRESS;
    if (result != EAI_INPROGRESS) asked_ = false;
    if (result == 0) {
      const char* const name = question_.ar_result->ai_canonname;
      if (name != nullptr) name_ = Normal(name);
      freeaddrinfo(question_.ar_result);
    }
    const Instant now = SteadyNow();
    if (!asked_ && now >= due_) {
      due_ = now + kPeriod;
      host_ = OwnHost();
      question_ = {};
      question_.ar_name = host_.c_str();
      hints_.ai_flags = AI_CANONNAME;
      question_.ar_request = &hints_;
      gaicb* questions[] = {&question_};
      asked_ = getaddrinfo_a(GAI_NOWAIT, questions, 1, nullptr) == 0;
    }
    return name_;
  }

 private:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);

  absl::Mutex mutex_;
  std::string name_ ABSL_GUARDED_BY(mutex_);
  Instant due_ ABSL_GUARDED_BY(mutex_);
  // While the question is under way, libc's thread reads these.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  std::string host_ ABSL_GUARDED_BY(mutex_);
  addrinfo hints_ ABSL_GUARDED_BY(mutex_) = {};
  gaicb question_ ABSL_GUARDED_BY(mutex_) = {};
};

FullName& TheFullName() {
  // Never destroyed: libc may still write to it while the process ends.
  static auto* const name = new FullName;
  return *name;
}

}  // namespace

bool IsOwnHost(const std::string& authority,
               const std::vector<std::string>& given) {
  auto where = ParseHostPort(authority);
  if (!where.ok()) where = ParseHostPort(authority + ":80");
  if (!where.ok()) return false;
  const std::string host = Normal(where->host);
  if (host.empty()) return false;
  const auto is_host = [&host](const std::string& name) {
    return Normal(name) == host;
  };
  const std::string own = OwnHost();
  const std::string label = own.substr(0, own.find('.'));
  return IsAddress(host) || host == "localhost" || host == own ||
         host == label || host == label + ".local" ||
         std::any_of(given.begin(), given.end(), is_host) ||
         (absl::StartsWith(host, label + ".") && host == TheFullName().Get());
}

void AskForDomain() { TheFullName().Get(); }

}  // namespace paceline
