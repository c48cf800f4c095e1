"""Makes the functions that copy structs of the logic from and to messages.

usage: mirror.py PROTOC PROTO_FOLDER OUTPUT_FILE

For each pair of MIRRORS the output has
  void Read(const v1::MESSAGE& from, STRUCT& to)
  void Write(const STRUCT& from, v1::MESSAGE& to)
  v1::MESSAGE ToProto(const STRUCT& from)
and for RoundMessage
  void VisitBody(const v1::MESSAGE& from, const Take& take)
    calls take(the body that is set, an empty STRUCT of its kind)
  void WriteBody(const STRUCT& from, v1::MESSAGE& to)
core/rpc/convert/mirror.h includes it and has the rest.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "job/spec"))
from generate import read_protos, write_text  # noqa: E402

PROTOS = [f"paceline/v1/{name}.proto"
          for name in ("control", "coordinator", "job", "round", "stage",
                       "types")]

# Structs with the names and fields of their messages; what others hold is first.
ALIKE = """
    Cut LayerRange AttemptRow OrderNumber
    RoundResult PartOffer Want Spread Hold Commit TooOld Answer Fetch StateOffer
    LevelDone StateRequest ParameterOffer ParameterAnswer StepVerdict FinishOrder
    Parameter ScriptLayer ScriptModel
    MeasuredSeconds LayerMeasurement LinkMeasurement
    FollowOrder PieceSource RunEstimate
""".split()
# (message, struct, place of a field in the struct where it has another name).
# None: the struct has no such field.  A time whose place lacks the field's unit
# is an absl::Duration there.
FIRST = [
    ("GroupMember", "MemberId",
     {"worker_id": "worker", "incarnation": "incarnation.value"}),
    ("ViewNumber", "ViewId", {}),
    ("ViewMember", "ViewMember", {"member": "id"}),
    ("Contributor", "Contributor", {}),
    ("ShardResult", "ShardResult", {"arrivals_us": "arrivals"}),
]
LAST = [
    ("StepReport", "StepReport",
     {"job": None, "attempt": None, "plan_version": None}),
    ("DeviceProfile", "DeviceProfile",
     {key: f"key.{key}"
      for key in ("model", "micro_batch", "dtype", "threads", "device")}),
    ("GroupWorker", "GroupWorker", {"member": "id"}),
    ("GroupOrder", "View",
     {"view": "id", "workers": None, "uploader": None, "lease_ms": None,
      "deposit_every": None, "deposit_from": None}),
    ("GroupOrder", "GroupOrder",
     {"view": "view.id", "members": "view.members",
      "leveller": "view.leveller", "lease_ms": "lease"}),
    ("PeerState", "PeerReport", {"broken_ms": "broken", "owing_ms": "owing"}),
    ("MemberState", "MemberReport",
     {"idle_ms": "idle", "slowest_ms": "slowest", "mismatch": None}),
    ("StagePlacement", "StagePlacement",
     {"first_layer": "layers.first", "last_layer": "layers.last",
      "worker_id": "worker"}),
    ("StagePlacement", "StageOfPlan",
     {"first_layer": "layers.first", "last_layer": "layers.last",
      "worker_id": "worker", "stage": None, "worker_name": None,
      "address": None}),
    ("KeepOrder", "KeepRule",
     {"job": None, "attempts": "rows", "follow": None, "finish": None}),
    ("RunOrder", "RunOrder",
     {"job": "fence.job", "attempt": "fence.attempt",
      "plan_version": "fence.plan_version"}),
]
MIRRORS = [*FIRST, *((name, name, {}) for name in ALIKE), *LAST]

# Structs whose ToProto() is written by hand, since it does more.
BY_HAND = ("ScriptModel", "DeviceProfile", "MemberReport")

UNITS = {"ms": "absl::Milliseconds(1)", "us": "absl::Microseconds(1)"}


def unit_of(name, place):
    """The unit of a time that the struct has as a duration, or None."""
    stem, _, unit = name.rpartition("_")
    same = place.rpartition(".")[2] == stem
    return UNITS.get(unit) if same else None


def copies(field, place):
    """The statements that read a field and write it."""
    name = field["name"][0]
    unit = unit_of(name, place)
    if field["label"] == ["LABEL_REPEATED"]:
        times = f", {unit}" if unit else ""
        return (f"ReadAll(from.{name}(){times}, to.{place});",
                f"WriteAll(from.{place}{times}, *to.mutable_{name}());")
    kind = field["type"][0]
    value = f"ValueOf(from.{place})"
    is_there = f"if (HasValue(from.{place})) "
    if kind == "TYPE_MESSAGE":
        return (f"if (from.has_{name}()) Read(from.{name}(), Place(to.{place}));",
                f"{is_there}Write({value}, *to.mutable_{name}());")
    times = f" * {unit}" if unit else ""
    plain = f"Plain({value}{f', {unit}' if unit else ''})"
    if kind == "TYPE_ENUM":
        enum = field["type_name"][0].removeprefix(".paceline.v1.")
        plain = f"static_cast<v1::{enum.replace('.', '_')}>({value})"
    known = f"if (from.has_{name}()) " if field["proto3_optional"] else ""
    return (f"{known}Read(from.{name}(){times}, Place(to.{place}));",
            f"{is_there if known else ''}to.set_{name}({plain});")


def mirror(message, struct, places, fields):
    """The functions of a pair."""
    pairs = [copies(field, place) for field in fields
             if (place := places.get(field["name"][0], field["name"][0]))]
    heads = (f"Read(const v1::{message}& from, {struct}& to)",
             f"Write(const {struct}& from, v1::{message}& to)")
    text = ""
    for side, head in enumerate(heads):
        body = "".join(f"  {pair[side]}\n" for pair in pairs)
        text += f"inline void {head} {{\n{body}}}\n"
    if struct in BY_HAND:
        return text
    return text + (f"inline v1::{message} ToProto(const {struct}& from) {{\n"
                   f"  return Given<v1::{message}>(from);\n}}\n")


def kinds_of_body(message, fields):
    """The functions that find the body of a message, and write one."""
    arms = []
    for field in fields:
        if not field["oneof_index"]:
            continue
        name = field["name"][0]
        camel = name.title().replace("_", "")
        body = field["type_name"][0].removeprefix(".paceline.v1.")
        # Several kinds have a result and nothing else.
        arms.append((name, camel, camel if body == "RoundResult" else body))
    return "".join(
        [f"template <typename Take>\n"
         f"void VisitBody(const v1::{message}& from, const Take& take) {{\n"
         f"  switch (from.body_case()) {{\n",
         *(f"    case v1::{message}::k{camel}:\n"
           f"      return take(from.{name}(), {struct}());\n"
           for name, camel, struct in arms),
         f"    case v1::{message}::BODY_NOT_SET:\n      return;\n  }}\n}}\n",
         *(f"inline void WriteBody(const {struct}& from, v1::{message}& to) {{\n"
           f"  Write(from, *to.mutable_{name}());\n}}\n"
           for name, _, struct in arms)])


def main(protoc, folder, output):
    messages = read_protos(protoc, folder, PROTOS)
    text = "".join(mirror(message, struct, places, messages[message])
                   for message, struct, places in MIRRORS)
    text += kinds_of_body("RoundMessage", messages["RoundMessage"])
    write_text(pathlib.Path(output),
               f"// {pathlib.Path(__file__).name} makes this file.\n{text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
