#include "core/trust/certificates.h"

#include <memory>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/transfer/checksum.h"
#include "openssl/bio.h"
#include "openssl/ec.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/rand.h"
#include "openssl/x509.h"
#include "openssl/x509v3.h"

namespace paceline {
namespace {

constexpr char kUriPrefix[] = "paceline://role/";
constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);
constexpr absl::string_view kCurve = SN_X9_62_prime256v1;  // P-256
constexpr char kSignedAt[] = "signed at ";  // in seconds, as a comment
constexpr int kVersion3 = 2;                // X.509 counts from 0

// By Role.
constexpr absl::string_view kRoles[] = {"coordinator", "worker", "client"};

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Request = std::unique_ptr<X509_REQ, Freed<X509_REQ_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;

Bio ToRead(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::string TextOf(const Bio& bio) {
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(bio.get(), &data));
  return std::string(data, size);
}

template <typename T>
absl::StatusOr<T> Checked(T object, absl::string_view what) {
  if (object != nullptr) return object;
  return InvalidArgument("this is no ", what);
}

absl::StatusOr<Key> ReadKey(const std::string& pem) {
  return Checked(
      Key(PEM_read_bio_PrivateKey(ToRead(pem).get(), nullptr, nullptr,
                                  // Asks nobody for a password.
                                  const_cast<char*>(""))),
      "private key (PEM)");
}

absl::StatusOr<Certificate> Read(const std::string& pem) {
  return Checked(Certificate(PEM_read_bio_X509(ToRead(pem).get(), nullptr,
                                               nullptr, nullptr)),
                 "certificate (PEM)");
}

// Its signature shows that the sender has the key.
absl::StatusOr<Request> ReadRequest(const std::string& pem) {
  PACELINE_ASSIGN_OR_RETURN(
      Request request,
      Checked(Request(PEM_read_bio_X509_REQ(ToRead(pem).get(), nullptr, nullptr,
                                            nullptr)),
              "request for a certificate (PEM)"));
  EVP_PKEY* const key = X509_REQ_get0_pubkey(request.get());
  char curve[32] = {};
  if (key == nullptr ||
      EVP_PKEY_get_group_name(key, curve, sizeof(curve), nullptr) != 1 ||
      absl::string_view(curve) != kCurve ||
      X509_REQ_verify(request.get(), key) != 1) {
    return InvalidArgument(
        "the request is not signed with its own key of the curve P-256");
  }
  return request;
}

std::string ToPem(const Certificate& certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PACELINE_CHECK(PEM_write_bio_X509(bio.get(), certificate.get()) == 1, "");
  return TextOf(bio);
}

std::string Digest(const std::vector<unsigned char>& bytes) {
  Sha256 hash;
  hash.Update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return hash.HexDigest().substr(0, kFingerprintDigits);
}

// As OpenSSL's i2d functions write `object`.
template <typename T>
std::vector<unsigned char> Encoded(int (*encode)(const T*, unsigned char**),
                                   const T* object) {
  std::vector<unsigned char> bytes(std::max(0, encode(object, nullptr)));
  unsigned char* end = bytes.data();
  if (!bytes.empty()) encode(object, &end);
  return bytes;
}

void Extend(const Certificate& certificate, const Certificate& issuer, int kind,
            const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer.get(), certificate.get(), nullptr, nullptr,
                 0);
  const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  PACELINE_CHECK(extension != nullptr, value);
  X509_add_ext(certificate.get(), extension.get(), -1);
}

// A certificate of `key` without extensions or signature.
Certificate Begin(EVP_PKEY* key, const std::string& name, absl::Time until) {
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), kVersion3);
  unsigned char serial[16];
  PACELINE_CHECK(RAND_bytes(serial, sizeof(serial)) == 1, "no randomness");
  serial[0] &= 0x7f;  // not negative
  const std::unique_ptr<BIGNUM, Freed<BN_free>> number(
      BN_bin2bn(serial, sizeof(serial), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get()));
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), 0);
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(until));
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(name.data()),
      static_cast<int>(name.size()), -1, 0);
  return certificate;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  ASN1_TIME_to_tm(time, &parts);
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

// Those of earlier releases were valid from a little before on.
absl::Time SignedAt(const Certificate& certificate, absl::Time not_before) {
  const std::unique_ptr<ASN1_STRING, Freed<ASN1_STRING_free>> comment(
      static_cast<ASN1_STRING*>(X509_get_ext_d2i(
          certificate.get(), NID_netscape_comment, nullptr, nullptr)));
  const std::string text = comment == nullptr ? "" : TextOf(comment.get());
  int64_t seconds = 0;
  return absl::SimpleAtoi(absl::StripPrefix(text, kSignedAt), &seconds)
             ? absl::FromUnixSeconds(seconds)
             : not_before + kClocksDiffer;
}

}  // namespace

absl::string_view RoleName(Role role) {
  return kRoles[static_cast<size_t>(role)];
}

std::optional<Role> RoleOfName(absl::string_view name) {
  const auto* const found = absl::c_find(kRoles, name);
  if (found == std::end(kRoles)) return std::nullopt;
  return static_cast<Role>(found - kRoles);
}

std::string UriOf(const Identity& identity) {
  return absl::StrCat(kUriPrefix, RoleName(identity.role), "/", identity.name);
}

std::optional<Identity> IdentityOfUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, kUriPrefix)) return std::nullopt;
  const size_t slash = uri.find('/');
  if (slash == absl::string_view::npos) return std::nullopt;
  const std::optional<Role> role = RoleOfName(uri.substr(0, slash));
  if (!role.has_value()) return std::nullopt;
  return Identity{*role, std::string(uri.substr(slash + 1))};
}

std::string MakeKey() {
  const Key key(EVP_EC_gen("P-256"));
  PACELINE_CHECK(key != nullptr, "no key was made");
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr,
                           nullptr);
  return TextOf(bio);
}

absl::StatusOr<std::string> MakeAuthority(const std::string& key,
                                          absl::Time now) {
  PACELINE_ASSIGN_OR_RETURN(const Key own, ReadKey(key));
  const Certificate certificate =
      Begin(own.get(), "Paceline mesh", now + kAuthorityLife);
  X509_set_issuer_name(certificate.get(),
                       X509_get_subject_name(certificate.get()));
  Extend(certificate, certificate, NID_basic_constraints,
         "critical,CA:TRUE,pathlen:0");
  Extend(certificate, certificate, NID_key_usage,
         "critical,keyCertSign,cRLSign");
  Extend(certificate, certificate, NID_subject_key_identifier, "hash");
  X509_sign(certificate.get(), own.get(), EVP_sha256());
  return ToPem(certificate);
}

absl::StatusOr<std::string> MakeSigningRequest(const std::string& key) {
  PACELINE_ASSIGN_OR_RETURN(const Key own, ReadKey(key));
  const Request request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), own.get());
  X509_REQ_sign(request.get(), own.get(), EVP_sha256());
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(bio.get(), request.get());
  return TextOf(bio);
}

absl::StatusOr<std::string> Sign(const Signing& signing) {
  PACELINE_ASSIGN_OR_RETURN(const Request request,
                            ReadRequest(signing.request));
  PACELINE_ASSIGN_OR_RETURN(const Certificate authority,
                            Read(signing.authority));
  PACELINE_ASSIGN_OR_RETURN(const Key key, ReadKey(signing.authority_key));
  const std::string& name = signing.identity.name;
  const Certificate certificate =
      Begin(X509_REQ_get0_pubkey(request.get()), name.substr(0, ub_common_name),
            signing.now + signing.life);
  X509_set_issuer_name(certificate.get(),
                       X509_get_subject_name(authority.get()));
  Extend(certificate, authority, NID_basic_constraints, "critical,CA:FALSE");
  Extend(certificate, authority, NID_key_usage, "critical,digitalSignature");
  Extend(certificate, authority, NID_ext_key_usage, "serverAuth,clientAuth");
  // Strict clients, such as Python 3.13, refuse a certificate without it.
  Extend(certificate, authority, NID_authority_key_identifier, "keyid");
  Extend(certificate, authority, NID_subject_alt_name,
         absl::StrCat("URI:", UriOf(signing.identity), ",DNS:", kTlsName));
  Extend(certificate, authority, NID_netscape_comment,
         absl::StrCat(kSignedAt, absl::ToUnixSeconds(signing.now)));
  if (X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) {
    return Internal("OpenSSL did not sign the certificate");
  }
  return ToPem(certificate);
}

absl::StatusOr<std::string> OnlyCertificate(const std::string& text) {
  PACELINE_ASSIGN_OR_RETURN(const Certificate certificate, Read(text));
  return ToPem(certificate);
}

absl::StatusOr<CertificateInfo> ReadCertificate(
    const std::string& certificate) {
  PACELINE_ASSIGN_OR_RETURN(const Certificate read, Read(certificate));
  CertificateInfo info;
  info.not_before = TimeOf(X509_get0_notBefore(read.get()));
  info.not_after = TimeOf(X509_get0_notAfter(read.get()));
  info.signed_time = SignedAt(read, info.not_before);
  info.key =
      Digest(Encoded<EVP_PKEY>(&i2d_PUBKEY, X509_get0_pubkey(read.get())));
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
          read.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    info.identity = IdentityOfUri(TextOf(name->d.uniformResourceIdentifier));
  }
  return info;
}

absl::Status CheckCertificate(const std::string& certificate,
                              const std::string& key,
                              const std::string& authority) {
  PACELINE_ASSIGN_OR_RETURN(const Certificate own, Read(certificate));
  PACELINE_ASSIGN_OR_RETURN(const Certificate signer, Read(authority));
  PACELINE_ASSIGN_OR_RETURN(const Key own_key, ReadKey(key));
  if (X509_check_private_key(own.get(), own_key.get()) != 1) {
    return PermissionDenied("the key is of another certificate");
  }
  if (X509_verify(own.get(), X509_get0_pubkey(signer.get())) != 1) {
    return PermissionDenied("another authority signed the certificate");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FingerprintOf(const std::string& certificate) {
  PACELINE_ASSIGN_OR_RETURN(const Certificate read, Read(certificate));
  return Digest(Encoded<X509>(&i2d_X509, read.get()));
}

absl::StatusOr<std::string> KeyFingerprintOf(const std::string& request) {
  PACELINE_ASSIGN_OR_RETURN(const Request read, ReadRequest(request));
  return Digest(
      Encoded<EVP_PKEY>(&i2d_PUBKEY, X509_REQ_get0_pubkey(read.get())));
}

std::string RandomHex(int bytes) {
  std::string drawn(static_cast<size_t>(bytes), '\0');
  PACELINE_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(drawn.data()), bytes) == 1,
      "no randomness");
  return absl::BytesToHexString(drawn);
}

}  // namespace paceline
