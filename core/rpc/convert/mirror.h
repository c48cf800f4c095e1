// Copies structs of the logic from and to the messages that mirror them, field
// by field.  mirror.py has the table of the pairs and makes their functions.
// Nothing is checked here: the FromProto() of this folder check what a peer has
// sent.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/base/tensor.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/job/spec/script_model.h"
#include "core/optim/step_gate.h"
#include "core/plan/measurement.h"
#include "core/plan/plan.h"
#include "core/recover/order.h"
#include "core/round/message.h"
#include "core/rpc/convert/job_convert.h"
#include "core/schedule/route.h"
#include "core/simulate/estimate.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/round.pb.h"
#include "paceline/v1/stage.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Where a field is read to, and what is written of it.
template <typename T>
T& Place(T& value) {
  return value;
}
template <typename T>
T& Place(std::optional<T>& value) {
  return value.emplace();
}
template <typename T>
const T& ValueOf(const T& value) {
  return value;
}
template <typename T>
const T& ValueOf(const std::optional<T>& value) {
  return *value;
}

// Whether a field is set.
template <typename T>
bool HasValue(const T&) {
  return true;
}
template <typename T>
bool HasValue(const std::optional<T>& value) {
  return value.has_value();
}
inline bool HasValue(const Cut& cut) { return cut != Cut(); }
inline bool HasValue(const MemberId& member) { return member.worker.value > 0; }

// The value of a scalar field.
template <Scalar T>
T Plain(T value) {
  return value;
}
inline const std::string& Plain(const std::string& value) { return value; }
template <typename Tag>
int64_t Plain(Id<Tag> id) {
  return id.value;
}
// At least one unit, where there is any time: 0 means none.
inline int64_t Plain(absl::Duration time, absl::Duration unit) {
  if (time <= absl::ZeroDuration()) return 0;
  return std::max<int64_t>(1, time / unit);
}

template <Scalar From, Scalar To>
void Read(From from, To& to) {
  to = static_cast<To>(from);
}
inline void Read(const std::string& from, std::string& to) { to = from; }
template <typename Tag>
void Read(int64_t from, Id<Tag>& to) {
  to.value = from;
}
// No time leaves the struct's own.
inline void Read(absl::Duration from, absl::Duration& to) {
  if (from != absl::ZeroDuration()) to = from;
}
// A value that nobody knows becomes kUnspecified, which no parameter may have.
inline void Read(v1::DType from, DType& to) {
  to = from > 0 && from < kDTypes ? static_cast<DType>(from)
                                  : DType::kUnspecified;
}

inline void Read(const v1::JobSpec& from, JobSpec& to) { to = FromProto(from); }
inline void Write(const JobSpec& from, v1::JobSpec& to) { to = ToProto(from); }
inline void Read(const v1::Inputs& from, v1::Inputs& to) { to = from; }
inline void Write(const v1::Inputs& from, v1::Inputs& to) { to = from; }
inline void Read(const v1::StageRoute& from, RouteTable& to) {
  to = RouteTable({from.turns().begin(), from.turns().end()});
}
inline void Write(const RouteTable& from, v1::StageRoute& to) {
  to.mutable_turns()->Add(from.turns().begin(), from.turns().end());
}

// A round's message that is a result and nothing else.
template <typename T>
requires std::same_as<decltype(T::result), RoundResult>
void Read(const v1::RoundResult& from, T& to) { Read(from, to.result); }
template <typename T>
requires std::same_as<decltype(T::result), RoundResult>
void Write(const T& from, v1::RoundResult& to) { Write(from.result, to); }

// Taken: the struct of a message.  Given: the message of a struct.
template <typename Struct, typename Message>
Struct Taken(const Message& message) {
  Struct value;
  Read(message, value);
  return value;
}
template <typename Message, typename Struct>
Message Given(const Struct& value) {
  Message message;
  Write(value, message);
  return message;
}

// Lists.
template <typename Elements, typename T>
void ReadAll(const Elements& from, std::vector<T>& to) {
  for (const auto& element : from) Read(element, to.emplace_back());
}
template <typename Elements, typename T>
void ReadAll(const Elements& from, std::set<T>& to) {
  for (const auto& element : from) to.insert(Taken<T>(element));
}
inline void ReadAll(const google::protobuf::RepeatedField<int64_t>& from,
                    absl::Duration unit, std::vector<absl::Duration>& to) {
  for (const int64_t count : from) to.push_back(count * unit);
}
template <typename Elements, typename T>
void WriteAll(const Elements& from, google::protobuf::RepeatedField<T>& to) {
  to.Add(from.begin(), from.end());
}
template <typename Elements, typename T>
void WriteAll(const Elements& from, google::protobuf::RepeatedPtrField<T>& to) {
  for (const auto& element : from) Write(element, *to.Add());
}
inline void WriteAll(const std::vector<absl::Duration>& from,
                     absl::Duration unit,
                     google::protobuf::RepeatedField<int64_t>& to) {
  for (const absl::Duration time : from) to.Add(Plain(time, unit));
}

#include "core/rpc/convert/mirror.gen.inc"

}  // namespace paceline
