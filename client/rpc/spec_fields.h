// Writes values given as text into a v1::JobSpec by its descriptor, so that a
// new field of the proto is a new key of job files at once.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace paceline {

// The keys of a message, in the order of the proto.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);

// The field that `key` names; null when there is none.
const google::protobuf::FieldDescriptor* FindKey(
    const google::protobuf::Descriptor& type, const std::string& key);

// "unknown key; did you mean 'optimizer'?", or where in `root` a key of that
// name is, or all keys there are.
std::string UnknownKey(const std::string& key,
                       const google::protobuf::Descriptor& type,
                       const google::protobuf::Descriptor& root);

// "a whole number", "a list of numbers", "text", "keys".
std::string ExpectedType(const google::protobuf::FieldDescriptor& field);

// Sets a field that is neither repeated nor a message (append: adds an element
// to a repeated one) from `text`.  Returns what is wrong with it, or "".
std::string SetScalar(google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field,
                      const std::string& text, bool append);

}  // namespace paceline
