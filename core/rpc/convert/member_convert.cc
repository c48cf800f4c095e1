#include "core/rpc/convert/member_convert.h"

#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {

absl::Status CheckCount(absl::string_view what, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return InvalidArgument(what, " is ", value, ", need 0 to ", most);
}

absl::Status CheckSize(absl::string_view what, int64_t size, int64_t most) {
  if (size <= most) return absl::OkStatus();
  return InvalidArgument(what, ": got ", size, ", need 0 to ", most);
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status CheckMember(const v1::GroupMember& member) {
  if (member.worker_id() >= 1 && member.incarnation() != 0) {
    return absl::OkStatus();
  }
  return InvalidArgument("member of a group: worker ", member.worker_id(),
                         ", incarnation ", member.incarnation(),
                         ": need a worker of at least 1 and an incarnation");
}

// Whether a process is not named that must be.
bool LacksMember(const Message& message) {
  constexpr absl::string_view kMayBeAbsent = " leveller uploader holder ";
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.message_type() == v1::GroupMember::descriptor() &&
        !field.is_repeated() &&
        !message.GetReflection()->HasField(message, &field) &&
        !absl::StrContains(kMayBeAbsent,
                           absl::StrCat(" ", field.name(), " "))) {
      return true;
    }
  }
  return false;
}

// Checks a field, and of a repeated one its element `i`.
absl::Status CheckField(const Message& message, const FieldDescriptor& field,
                        int i, absl::string_view except) {
  const google::protobuf::Reflection& values = *message.GetReflection();
  const bool list = field.is_repeated();
  const auto name = [&field] {
    return absl::StrCat(field.containing_type()->name(), ".", field.name());
  };
  const auto check = [&](int64_t count) {
    return count >= 0 && count <= kMaxCount ? absl::OkStatus()
                                            : CheckCount(name(), count);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return check(list ? values.GetRepeatedInt32(message, &field, i)
                        : values.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return check(list ? values.GetRepeatedInt64(message, &field, i)
                        : values.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = list ? values.GetRepeatedDouble(message, &field, i)
                                : values.GetDouble(message, &field);
      if (std::isfinite(value) && value >= 0) return absl::OkStatus();
      return InvalidArgument(name(), " is ", value,
                             ", need a finite number that is not negative");
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return CheckNumbers(list ? values.GetRepeatedMessage(message, &field, i)
                               : values.GetMessage(message, &field),
                          except);
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::Status CheckNumbers(const Message& message, absl::string_view except) {
  const google::protobuf::Reflection& values = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  values.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->name() == except) continue;
    const int count =
        field->is_repeated() ? values.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      PACELINE_RETURN_IF_ERROR(CheckField(message, *field, i, except));
    }
  }
  if (LacksMember(message)) return CheckMember(v1::GroupMember());
  if (message.GetDescriptor() != v1::GroupMember::descriptor()) {
    return absl::OkStatus();
  }
  return CheckMember(static_cast<const v1::GroupMember&>(message));
}

absl::StatusOr<MemberId> FromProto(const v1::GroupMember& proto) {
  PACELINE_RETURN_IF_ERROR(CheckMember(proto));
  return Taken<MemberId>(proto);
}

}  // namespace paceline
