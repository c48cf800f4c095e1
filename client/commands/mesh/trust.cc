#include "absl/strings/str_cat.h"
#include "client/commands/mesh/mesh.h"
#include "client/files/settings.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"

namespace paceline {
namespace {

Document CertificateDocument(const ShownCertificate& certificate) {
  return {
      {"role", certificate.role},
      {"name", certificate.name},
      {"expires", absl::FormatTime(certificate.not_after, absl::UTCTimeZone())},
      {"folder", certificate.folder}};
}

// Another machine does not reach this one by its loopback address.
std::string AsOthersDialIt(const std::string& coordinator) {
  const auto where = ParseHostPort(coordinator);
  return where.ok() && IsLoopback(where->host)
             ? absl::StrCat("HOST:", where->port)
             : coordinator;
}

}  // namespace

Outcome CreateTokenCommand(TrustClient& client, Console& console,
                           const std::string& coordinator,
                           const TokenOptions& options) {
  v1::CreateTokenRequest request;
  request.set_role(options.role);
  request.set_uses(options.uses);
  request.set_ttl_seconds(absl::ToInt64Seconds(options.ttl));
  request.set_for_name(options.for_name);
  if (request.ttl_seconds() < 1) {
    return InvalidArgument("--ttl: need 1s at least, got ",
                           absl::FormatDuration(options.ttl));
  }
  PACELINE_ASSIGN_OR_RETURN(const auto created, client.CreateToken(request));
  Document document = MessageDocument(created.kept());
  document["token"] = created.token();
  console.Print(absl::StrCat(created.token(), "\n"), document);
  if (!console.table()) return kExitOk;
  console.Note(
      "good for ", options.uses == 1 ? "one " : "each ", options.role,
      options.uses == 1 ? "" : absl::StrCat(" of ", options.uses),
      options.for_name.empty() ? "" : " of the name " + options.for_name,
      " within ", absl::FormatDuration(options.ttl), "; there: ",
      options.role == "worker" ? "paceline-worker join " : "paceline login ",
      AsOthersDialIt(coordinator), " TOKEN",
      options.for_name.empty()   ? ""
      : options.role == "worker" ? " --name " + options.for_name
                                 : " --user " + options.for_name);
  return kExitOk;
}

Outcome ListTokensCommand(TrustClient& client, Console& console) {
  PACELINE_ASSIGN_OR_RETURN(const auto tokens, client.ListTokens());
  Table table({"id", "role", "for", ">uses left", "expires"});
  for (const v1::JoinToken& token : tokens.tokens()) {
    table.AddRow(token.id(), token.role(),
                 token.for_name().empty() ? "-" : token.for_name(),
                 token.uses_left(), HumanTime(token.expires_unix_ms()));
  }
  console.PrintList(table.Render(), "tokens",
                    ListOf(tokens.tokens(), MessageDocument));
  return kExitOk;
}

Outcome RevokeTokenCommand(TrustClient& client, Console& console,
                           const std::string& id) {
  PACELINE_ASSIGN_OR_RETURN(const auto revoked, client.RevokeToken(id));
  console.Print(absl::StrCat("token ", id, " is revoked\n"),
                MessageDocument(revoked));
  return kExitOk;
}

Outcome RevokeCommand(TrustClient& client, Console& console,
                      const std::string& role, const std::string& name) {
  PACELINE_ASSIGN_OR_RETURN(const auto revoked, client.Revoke(role, name));
  console.Print(
      absl::StrCat("the certificates of ", role, " ", name, " are revoked\n"),
      MessageDocument(revoked));
  if (role == "worker" && !revoked.known()) {
    console.Note("no worker ", name,
                 " has attached so far: is that its name in 'paceline node "
                 "list'?");
  }
  return kExitOk;
}

Outcome LoginCommand(TrustClient& client, Console& console,
                     const std::string& coordinator, const std::string& token,
                     const std::string& user, const std::string& settings) {
  PACELINE_ASSIGN_OR_RETURN(
      const ShownCertificate certificate,
      client.Login(token, user, [&console](const std::string& text) {
        console.Note("paceline: ", text);
      }));
  const auto remembered = RememberCoordinator(settings, coordinator);
  if (!remembered.ok()) console.Note(remembered.status().message());
  console.Print(absl::StrCat("logged in at ", coordinator, " as ", user,
                             remembered.value_or(false)
                                 ? ""
                                 : absl::StrCat("; use it with --coordinator ",
                                                coordinator),
                             "\n"),
                CertificateDocument(certificate));
  return kExitOk;
}

Outcome CheckTlsCommand(TrustClient& client, Console& console,
                        const std::string& coordinator) {
  PACELINE_ASSIGN_OR_RETURN(const auto certificate, client.Check());
  console.Print(absl::StrCat("ok: ", coordinator, " takes the certificate of ",
                             certificate.role, " ", certificate.name, " in ",
                             certificate.folder, ", which expires at ",
                             absl::FormatTime(certificate.not_after), "\n"),
                CertificateDocument(certificate));
  return kExitOk;
}

}  // namespace paceline
