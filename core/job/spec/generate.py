"""Makes C++ of the keys that proto/paceline/v1/job.proto declares.

usage: generate.py PROTOC PROTO_FOLDER OUTPUT_FOLDER

  core/job/spec/job_spec.gen.h    the structs, JobSpec last
  core/job/job_keys.gen.inc       the rows of JobKeys()
  core/rpc/convert/job_convert.gen.inc  TakeKeys(), GiveKeys(): message <-> struct
"""

import ast
import collections
import pathlib
import re
import subprocess
import sys

PROTO = "paceline/v1/job.proto"
TYPES = {"INT32": "int32_t", "INT64": "int64_t", "DOUBLE": "double",
         "BOOL": "bool", "STRING": "std::string"}

# job_spec.cc defines these, since each caller would compile a copy.
SPECIAL = {"JobSpec": """
  JobSpec();
  JobSpec(const JobSpec& other);
  JobSpec(JobSpec&& other) noexcept;
  JobSpec& operator=(const JobSpec& other);
  JobSpec& operator=(JobSpec&& other) noexcept;
  ~JobSpec();
"""}

# path: "train.only"; place: of its value in the struct, "model.only".
Key = collections.namedtuple("Key", "path place field options meaning")


def read_text_format(lines):
    """A message as protoc --decode prints it: name -> list of values."""
    message = collections.defaultdict(list)
    for line in map(str.strip, lines):
        if line == "}":
            break
        if line.endswith(" {"):
            message[line[:-2]].append(read_text_format(lines))
        else:
            name, value = line.split(": ", 1)
            message[name].append(
                ast.literal_eval(value) if value[0] == '"' else value)
    return message


def read_protos(protoc, folder, protos):
    """Name -> message with its fields; each has its `options` and `comment`."""
    protoc = [protoc, "-I", folder]
    described = subprocess.run(
        [*protoc, "--include_source_info", "--descriptor_set_out=/dev/stdout",
         *protos], check=True, stdout=subprocess.PIPE).stdout
    text = subprocess.run(
        [*protoc, "--decode=google.protobuf.FileDescriptorSet", PROTO],
        input=described, check=True, stdout=subprocess.PIPE).stdout.decode()
    messages = {}
    for file in read_text_format(iter(text.splitlines()))["file"]:
        comments = {tuple(map(int, place["path"])): place["leading_comments"][0]
                    for place in file["source_code_info"][0]["location"]
                    if place["leading_comments"]}
        for m, message in enumerate(file["message_type"]):
            for f, field in enumerate(message["field"]):
                field["comment"] = comments.get((4, m, 2, f), "")
                options = (field["options"] or [{}])[0]
                options = options.get("[paceline.v1.key]", [{}])[0]
                field["key"] = {name: value[0]
                                for name, value in options.items()}
            messages[message["name"][0]] = message["field"]
    return messages


def write_text(path, text):
    """Leaves a file as it is that has the text, and so what is made of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def cpp_type(field):
    kind = field["type"][0].removeprefix("TYPE_")
    value = TYPES.get(kind) or field["type_name"][0].rsplit(".", 1)[1]
    return f"std::vector<{value}>" if is_repeated(field) else value


def is_repeated(field):
    return field["label"] == ["LABEL_REPEATED"]


def children(messages, field):
    """The fields of the section that `field` is; none: it is a value."""
    type_name = field["type_name"] or [""]
    name = type_name[0].rsplit(".", 1)[-1]
    return messages[name] if name.endswith("Spec") else []


def keys_of(messages, fields, section=""):
    for field in fields:
        path = section + field["name"][0]
        if children(messages, field):
            yield from keys_of(messages, children(messages, field), path + ".")
        elif not field["type_name"]:
            holder = field["key"].get("held_by")
            place = f"{holder}.{field['name'][0]}" if holder else path
            meaning = " ".join(field["comment"].split("\n\n")[0].split())
            yield Key(path, place, field, field["key"], meaning)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def member(name, field):
    default = field["key"].get("default", "")
    if default and cpp_type(field) == "std::string":
        default = quoted(default)
    comment = "".join(f"  //{line}\n" for line in field["comment"].splitlines())
    return f"{comment}  {cpp_type(field)} {name} = {{{default}}};\n"


def structs(messages, keys, name="JobSpec", section=""):
    """The struct of a message after those of its sections."""
    text = members = ""
    for field in messages[name]:
        path = section + field["name"][0]
        if children(messages, field):
            part = field["type_name"][0].rsplit(".", 1)[1]
            text += structs(messages, keys, part, path + ".")
        if "held_by" not in field["key"]:
            members += member(field["name"][0], field)
    for key in keys:
        holder, _, held = key.place.rpartition(".")
        if key.place != key.path and holder + "." == section:
            members += member(held, key.field)
    return f"{text}struct {name} {{\n{members}{SPECIAL.get(name, '')}}};\n\n"


def condition(text):
    """What a number must fulfil whose range is `text`."""
    if between := re.fullmatch(r"in ([(\[])(.+), (.+)([)\]])", text):
        low, high = (">=", ">")[between[1] == "("], ("<=", "<")[between[4] == ")"]
        return f"v {low} {between[2]} && v {high} {between[3]}"
    if least := re.fullmatch(r"(\S+)( \(.*\))? or more", text):
        return f"v >= {least[1]}"
    if above := re.fullmatch(r"greater than (\S+)( and at most (\S+).*)?", text):
        return f"v > {above[1]}" + (f" && v <= {above[3]}" if above[3] else "")
    return sys.exit(f"{PROTO}: no range of numbers is '{text}'")


def key_range(key):
    text = key.options.get("range")
    if one_of := key.options.get("one_of"):
        what, words = one_of.split(": ")
        known = (f".names = [] {{ return {words}; }}" if words.endswith("()")
                 else f".words = {quoted(f' {words} ')}")
        return f"{known}, .what = {quoted(what)}"
    if text is None:
        return ""
    if cpp_type(key.field) == "double":
        return (f".good = [](double v) {{ return {condition(text)}; }}, "
                f".text = {quoted(text)}")
    whole = re.fullmatch(r"(\S+) (?:or (more)|to (\S+))", text)
    if not whole:
        sys.exit(f"{PROTO}: no range of whole numbers is '{text}'")
    return f".least = {whole[1]}, .most = {whole[3] or 'kMostWhole'}"


def row(key):
    place = key.place.replace("faults.", "faults[i].")
    index = " i" if key.path.startswith("faults.") else ""
    decider, needs = key.options.get("only_with", ": ").split(": ")
    bearing = key.options.get("bearing", "BEARING_NONE")
    return f"""\
{{.path = {quoted(key.path)},
 .at = [](JobSpec& spec, size_t{index}) -> KeyValue {{ return &spec.{place}; }},
 .meaning = {quoted(key.meaning)},
 .range = {{{key_range(key)}}},
 .absent = {quoted(key.options.get("absent", ""))},
 .decider = {quoted(decider)},
 .needs = {quoted(f" {needs} " if needs else "")},
 .bearing = Bearing::k{bearing[8:].capitalize()}}},
"""


def conversions(key):
    """The two statements that take a value from a message and give it back."""
    *sections, name = key.path.split(".")
    of_fault = sections[:1] == ["faults"]
    loop = "for (size_t i = 0; i < spec.faults.size(); ++i) " if of_fault else ""
    index = "i" if of_fault else ""
    value = "spec." + key.place.replace("faults.", "faults[i].")
    source = "proto" + "".join(f".{part}({index})" for part in sections)
    target = "proto." + "".join(
        f"mutable_{part}({index})->" for part in sections)
    if is_repeated(key.field):
        return (f"  TakeAll({source}.{name}(), {value});\n",
                f"  *{target}mutable_{name}() = "
                f"{{{value}.begin(), {value}.end()}};\n")
    zero = "!= " + ('""' if cpp_type(key.field) == "std::string" else "0")
    given = (f"{source}.has_{name}()" if key.field["proto3_optional"]
             else f"{source}.{name}() {zero}")
    return (f"  {loop}if ({given}) {value} = {source}.{name}();\n",
            f"  {loop}{target}set_{name}({value});\n")


def main(protoc, folder, output):
    messages = read_protos(protoc, folder, [PROTO])
    keys = list(keys_of(messages, messages["JobSpec"]))
    take, give = zip(*map(conversions, keys))
    made = f"// {pathlib.Path(__file__).name} makes this file of {PROTO}.\n"
    files = {
        "core/job/spec/job_spec.gen.h":
            "#pragma once\n\n#include <cstdint>\n#include <string>\n"
            "#include <vector>\n\n#include \"core/job/spec/script_model.h\"\n\n"
            f"namespace paceline {{\n\n{structs(messages, keys)}"
            "}  // namespace paceline\n",
        "core/job/job_keys.gen.inc": "".join(map(row, keys)),
        "core/rpc/convert/job_convert.gen.inc":
            "void TakeKeys(const v1::JobSpec& proto, JobSpec& spec) {\n"
            f"{''.join(take)}}}\n\n"
            "void GiveKeys(const JobSpec& spec, v1::JobSpec& proto) {\n"
            f"{''.join(give)}}}\n"}
    for name, text in files.items():
        write_text(pathlib.Path(output, name), made + text)


if __name__ == "__main__":
    main(*sys.argv[1:])
