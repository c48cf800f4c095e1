// Messages with something in every field, so that a conversion that forgets one
// shows it.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/report_convert.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/field_comparator.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace paceline {

// Gives every field of a message, and of those inside, a value that no other
// field has and that is nobody's default.
class Filler {
  using FieldDescriptor = google::protobuf::FieldDescriptor;
  using Message = google::protobuf::Message;
  using Reflection = google::protobuf::Reflection;

 public:
  void Fill(google::protobuf::Message& message) {
    const auto* descriptor = message.GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      if (field->is_repeated()) {
        Add(message, field);
        Add(message, field);
      } else {
        Set(message, field);
      }
    }
  }

 private:
  void Set(google::protobuf::Message& message, const FieldDescriptor* field) {
    const Reflection* reflection = message.GetReflection();
    ++next_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetInt32(&message, field, next_);
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->SetInt64(&message, field,
                                    (int64_t{1} << 40) + next_);
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetUInt64(&message, field,
                                     (uint64_t{1} << 63) + next_);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetDouble(&message, field, next_ + 0.1);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection->SetFloat(&message, field, next_ + 0.1f);
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->SetBool(&message, field, true);
      case FieldDescriptor::CPPTYPE_ENUM:  // the last value there is
        return reflection->SetEnumValue(
            &message, field,
            field->enum_type()
                ->value(field->enum_type()->value_count() - 1)
                ->number());
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->SetString(&message, field,
                                     absl::StrCat(field->name(), next_));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(*reflection->MutableMessage(&message, field));
      default:
        FAIL() << "teach the filler the type of " << field->full_name();
    }
  }

  void Add(google::protobuf::Message& message, const FieldDescriptor* field) {
    const Reflection* reflection = message.GetReflection();
    ++next_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->AddInt32(&message, field, next_);
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->AddInt64(&message, field,
                                    (int64_t{1} << 40) + next_);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->AddDouble(&message, field, next_ + 0.1);
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->AddString(&message, field,
                                     absl::StrCat(field->name(), next_));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(*reflection->AddMessage(&message, field));
      default:
        FAIL() << "teach the filler the type of " << field->full_name();
    }
  }

  int next_ = 1000;
};

template <typename Proto>
Proto Filled() {
  Proto proto;
  Filler().Fill(proto);
  return proto;
}

// Empty when equal; else what differs.
inline std::string Difference(const google::protobuf::Message& want,
                              const google::protobuf::Message& got) {
  std::string report;
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  differencer.ReportDifferencesToString(&report);
  return differencer.Compare(want, got) ? "" : report;
}

// The fields that do not come back; FromProto may fail.
template <typename Proto>
std::string LostOnTheWay(const Proto& proto) {
  const auto there = FromProto(proto);
  if constexpr (requires { there.status(); }) {
    if (!there.ok()) return there.status().ToString();
    return Difference(proto, ToProto(*there));
  } else {
    return Difference(proto, ToProto(there));
  }
}

}  // namespace paceline
