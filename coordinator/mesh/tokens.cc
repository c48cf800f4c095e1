#include "coordinator/mesh/tokens.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/jobs/list_page.h"
#include "core/base/errors.h"
#include "core/cluster/registration.h"

namespace paceline {
namespace {

constexpr absl::Duration kUsualLife = absl::Hours(1);

absl::Status Refuse(absl::string_view why) {
  return PermissionDenied("the token is refused: ", why,
                          "; get another one with 'paceline token create'");
}

v1::JoinToken Shown(v1::JoinToken token) {
  token.clear_secret_sha256();
  return token;
}

}  // namespace

void Tokens::Put(const v1::JoinToken& token) {
  tokens_[token.id()] = token;
  mesh_.actions.writes.tokens[token.id()] = token;
  mesh_.actions.writes.durable = true;
}

void Tokens::Drop(const std::string& id) {
  tokens_.erase(id);
  mesh_.actions.writes.tokens[id] = std::nullopt;
  mesh_.actions.writes.durable = true;
}

void Tokens::Bind(const std::string& name, const std::string& key) {
  const std::string lower = absl::AsciiStrToLower(name);
  std::string& bound = keys_[lower];
  if (std::exchange(bound, key) == key) return;
  mesh_.actions.writes.keys[lower] = key;
  mesh_.actions.writes.durable = true;
}

std::string Tokens::KeyOf(const std::string& name) const {
  const auto found = keys_.find(absl::AsciiStrToLower(name));
  return found == keys_.end() ? "" : found->second;
}

absl::Status Tokens::OnKey(const std::string& name, const std::string& key) {
  if (name.empty() || key.empty()) return absl::OkStatus();
  const std::string bound = KeyOf(name);
  if (!bound.empty() && bound != key) {
    return PermissionDenied(
        "the name ", name,
        " is taken: it belongs to the machine with another "
        "key; choose another --name, or give it to this machine: get a token "
        "with 'paceline token create --for ",
        name, "', and join with it");
  }
  Bind(name, key);
  return absl::OkStatus();
}

void Tokens::FreeName(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (keys_.erase(lower) == 0) return;
  mesh_.actions.writes.keys[lower] = "";
  mesh_.actions.writes.durable = true;
}

void Tokens::DropIf(
    absl::FunctionRef<bool(const v1::JoinToken& token)> is_over) {
  std::vector<std::string> over;
  for (const auto& [id, token] : tokens_) {
    if (is_over(token)) over.push_back(id);
  }
  for (const std::string& id : over) Drop(id);
}

absl::StatusOr<v1::JoinToken> Tokens::OnCreate(
    const v1::CreateTokenRequest& request, const std::string& id,
    const std::string& secret_sha256, Moment moment) {
  DropIf([moment](const v1::JoinToken& token) {
    return token.expires_unix_ms() <= moment.unix_ms;
  });
  const absl::Duration life = request.ttl_seconds() == 0
                                  ? kUsualLife
                                  : absl::Seconds(request.ttl_seconds());
  if (request.role() != "worker" && request.role() != "client") {
    return InvalidArgument("no token makes a '", request.role(),
                           "': the roles are worker and client");
  }
  if (request.uses() < 0 || request.uses() > kMostUses) {
    return InvalidArgument("a token has 1 to ", kMostUses, " uses, got ",
                           request.uses());
  }
  const std::string& name = request.for_name();
  if (const std::string why = WhyNoWorkerName(name);
      !name.empty() && !why.empty()) {
    return InvalidArgument(why);
  }
  if (!name.empty() && request.uses() > 1) {
    return InvalidArgument("a token for the name ", name, " has one use, got ",
                           request.uses());
  }
  if (life < absl::Seconds(1) || life > kLongestLife) {
    return InvalidArgument("a token lives for 1s to ",
                           absl::FormatDuration(kLongestLife), ", got ",
                           absl::FormatDuration(life));
  }
  if (static_cast<int64_t>(tokens_.size()) >= kMostTokens) {
    return ResourceExhausted(
        "there are ", kMostTokens,
        " tokens: revoke some with 'paceline token revoke'");
  }
  v1::JoinToken token;
  token.set_id(id);
  token.set_role(request.role());
  token.set_uses_left(std::max<int64_t>(1, request.uses()));
  token.set_expires_unix_ms(moment.unix_ms + absl::ToInt64Milliseconds(life));
  token.set_secret_sha256(secret_sha256);
  token.set_for_name(name);
  Put(token);
  return Shown(token);
}

absl::Status Tokens::OnUse(const TokenUse& use, Moment moment) {
  while (!wrong_.empty() && moment.now - wrong_.front() >= absl::Minutes(1)) {
    wrong_.pop_front();
  }
  const auto found = tokens_.find(use.id);
  // A right token is accepted however many wrong ones came.
  if (found == tokens_.end() ||
      found->second.secret_sha256() != use.secret_sha256) {
    if (wrong_.size() >= kMostWrongAMinute) {
      return ResourceExhausted(
          "too many wrong tokens came lately: try again in a minute");
    }
    wrong_.push_back(moment.now);
    return Refuse("it is unknown, used up or revoked");
  }
  v1::JoinToken token = found->second;
  if (token.expires_unix_ms() <= moment.unix_ms) {
    return Refuse("it has expired");
  }
  if (token.role() != use.role) {
    return Refuse(
        absl::StrCat("it makes a ", token.role(), ", not a ", use.role));
  }
  const std::pair<std::string, std::string> holder =
      absl::StrSplit(use.holder, absl::MaxSplits('/', 1));
  const auto& [key, name] = holder;
  const std::string& only = token.for_name();
  if (!only.empty() && only != name) {
    return Refuse(absl::StrCat("it is for ", only, ", not ", name));
  }
  const bool again = absl::c_linear_search(token.used_by(), use.holder);
  if (!again && token.uses_left() == 0) return Refuse("it is used up");
  if (use.role == "worker") {
    // Only once: a machine that has lost the name since does not regain it by
    // repeating the call.
    if (!again && !only.empty()) Bind(name, key);
    PACELINE_RETURN_IF_ERROR(OnKey(name, key));
  }
  if (again) return absl::OkStatus();
  token.set_uses_left(token.uses_left() - 1);
  token.add_used_by(use.holder);
  Put(token);
  return absl::OkStatus();
}

absl::StatusOr<v1::JoinToken> Tokens::OnRevoke(const std::string& id) {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) {
    return NotFound("there is no token ", id,
                    ": 'paceline token list' shows those that there are");
  }
  const v1::JoinToken token = found->second;
  Drop(id);
  return Shown(token);
}

void Tokens::OnRevokeHolder(const std::string& role, const std::string& name) {
  const std::string end = absl::StrCat("/", name);
  DropIf([&](const v1::JoinToken& token) {
    return token.role() == role &&
           absl::c_any_of(token.used_by(), [&end](const auto& holder) {
             return absl::EndsWith(holder, end);
           });
  });
  if (role == "worker") FreeName(name);
}

absl::StatusOr<v1::ListTokensResponse> Tokens::View(
    const v1::ListTokensRequest& request, Moment moment) const {
  PACELINE_ASSIGN_OR_RETURN(const int64_t skip,
                            ListPage::Parse(request.page_token()));
  std::vector<v1::JoinToken> there;
  for (const auto& [id, token] : tokens_) {
    if (token.expires_unix_ms() <= moment.unix_ms || token.uses_left() == 0) {
      continue;
    }
    there.push_back(Shown(token));
  }
  absl::c_stable_sort(there, [](const auto& a, const auto& b) {
    return a.expires_unix_ms() < b.expires_unix_ms();
  });
  v1::ListTokensResponse response;
  ListPage page(skip, request.page_size(), kMostTokens);
  page.Add(there, *response.mutable_tokens());
  response.set_next_page_token(page.next());
  return response;
}

}  // namespace paceline
