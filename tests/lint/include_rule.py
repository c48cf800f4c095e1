"""Which file may include what.  The rule is data; read the tables.

A header is of one kind: a library's (LIBRARIES), the project's own (a path
from the top of the tree), or the standard library's.  A file is judged by the
first row of RULES whose pattern matches its path.
"""

import re

from tree import Problem

# Kind -> how its headers are spelled.
LIBRARIES = {
    "absl": r"absl/",
    "grpc": r"grpc(pp)?/|grpc\+\+/",
    "protobuf": r"google/protobuf/|google/rpc/",
    "stubs": r"paceline/v1/.*\.grpc\.pb\.h$",
    "generated": r"paceline/v1/.*\.pb\.h$",
    "torch": r"(torch|ATen|c10|caffe2)/",
    "blas": r"cblas\.h$|openblas_config\.h$|f77blas\.h$",
    "spdlog": r"(spdlog|fmt)/",
    "prometheus": r"prometheus/",
    "httplib": r"httplib\.h$",
    "sqlite": r"sqlite3\.h$",
    "yaml": r"yaml-cpp/",
    "cli11": r"CLI/",
    "zlib": r"zlib\.h$",
    "images": r"(jpeglib|jerror|turbojpeg|png)\.h$",
    "json": r"nlohmann/",
    "xxhash": r"xxhash\.h$|xxh3\.h$|xxh_x86dispatch\.h$",
    "openssl": r"openssl/",
    "systemd": r"systemd/",
    "sanitizer": r"sanitizer/",
    "gtest": r"(gtest|gmock)/",
    "benchmark": r"benchmark/",
    # The operating system's: sockets, files, processes.
    "posix": r"(sys|linux|netinet|arpa|net)/|(unistd|fcntl|signal|pthread|"
             r"poll|netdb|sched|dirent|spawn|glob|pwd|termios|syslog|dlfcn|"
             r"getopt|cxxabi|execinfo|ifaddrs|malloc)\.h$",
}
# <vector>, <cstdint>, and the C headers that some write with .h.
STANDARD = re.compile(
    r"[a-z_]+$|(assert|ctype|errno|float|inttypes|limits|math|stddef|stdint|"
    r"setjmp|stdio|stdlib|string|time)\.h$")
OWN = re.compile(r"(core|coordinator|worker|client|tests)/")
# core/job/spec/generate.py and core/rpc/convert/mirror.py make these while the
# project is built.
MADE = {"core/job/spec/job_spec.gen.h", "core/job/job_keys.gen.inc",
        "core/rpc/convert/job_convert.gen.inc",
        "core/rpc/convert/mirror.gen.inc"}

CORE_LOGIC = (r"core/(base|os|job|data|model|plan|predict|schedule|simulate|"
              r"cluster|round|recover|optim|transfer|weights)/")
OBS = r"core/obs/"
RPC = r"core/(rpc|trust)/"
# The client, but for its use of gRPC.
CLIENT = r"client/(options|usage|rpc/(control|trust)_client|" \
         r"(commands(/[a-z]+)?|files|render|study|values)/[^/]+)\.h$"
WIRE = {"grpc", "protobuf", "stubs", "generated"}
# Messages as structs of the logic, for whoever stores or shows them.
CONVERT = r"core/(trust/secret|rpc/(convert/[a-z_]+|status|channel))\.h$"
WORKER = (r"worker/((control|meters|pipeline|profile|rounds|rounds/parts)/)?"
          r"[^/]+\.h$")
# The coordinator, but for what stores and sends.
COORDINATOR = (r"coordinator/((attempts|jobs|mesh|place|watch)/)?[^/]+\.h$")


# (files, library kinds besides absl and the standard library, own headers).
# "any" stands for all of them.
RULES = [
    # Programs: main.cc ties everything together.
    (r"(coordinator|worker|client)/main\.cc$", "any", "any"),
    (r"(coordinator|worker)/options\.(h|cc)$", {"cli11", "posix"},
     [CORE_LOGIC, OBS, r"(coordinator|worker)/[^/]+\.h$"]),
    (r"client/(options|usage)\.(h|cc)$", {"cli11", "posix"},
     [CORE_LOGIC, CLIENT]),
    (r"client/dispatch\.(h|cc)$", {"generated"},
     [CORE_LOGIC, CONVERT, CLIENT, r"client/dispatch\.h$"]),

    # Logic that everything else stands on.
    (r"core/base/", set(), [r"core/base/"]),
    (r"core/os/", {"posix"}, [r"core/(base|os)/"]),
    (r"core/transfer/[^/]+\.cc$", {"xxhash", "openssl"}, [CORE_LOGIC]),
    (r"core/weights/", {"json", "posix"}, [CORE_LOGIC]),
    # What workers say of themselves is kept as the message that says it.
    (r"core/cluster/", {"generated"}, [CORE_LOGIC]),
    (CORE_LOGIC, set(), [CORE_LOGIC]),

    # Adapters of core.
    (r"core/trust/", {"openssl", "posix"}, [CORE_LOGIC, r"core/trust/"]),
    (r"core/rpc/", WIRE | {"posix"}, [CORE_LOGIC, RPC]),
    (r"core/obs/[^/]+\.cc$",
     {"spdlog", "prometheus", "httplib", "openssl", "systemd", "posix"},
     [r"core/(base|os)/", OBS]),
    (r"core/obs/[^/]+\.h$", set(), [r"core/(base|os)/", OBS]),

    # Daemons and client: their own logic, then their adapters.
    (r"coordinator/store/", {"sqlite", "posix", "generated"},
     [CORE_LOGIC, OBS, CONVERT, COORDINATOR, r"coordinator/store/"]),
    (r"coordinator/rpc/", WIRE | {"posix"},
     [CORE_LOGIC, OBS, RPC, COORDINATOR, r"coordinator/rpc/"]),
    (COORDINATOR.replace(r"\.h$", r"\.(h|cc)$"), {"posix", "generated"},
     [CORE_LOGIC, OBS, CONVERT, COORDINATOR]),

    (r"worker/torch/", {"torch", "blas", "posix"},
     [CORE_LOGIC, OBS, WORKER, r"worker/torch/"]),
    (r"worker/transport/", WIRE | {"posix"},
     [CORE_LOGIC, OBS, RPC, WORKER, r"worker/transport/"]),
    (r"worker/data/", {"zlib", "images", "posix"},
     [CORE_LOGIC, OBS, WORKER, r"worker/data/"]),
    # Its reports are messages from the beginning.
    (WORKER.replace(r"\.h$", r"\.(h|cc)$"), {"posix", "generated"},
     [CORE_LOGIC, OBS, CONVERT, WORKER]),

    (r"client/rpc/", WIRE | {"posix"}, [CORE_LOGIC, RPC, r"client/rpc/"]),
    (r"client/values/", {"generated", "yaml", "json"},
     [CORE_LOGIC, r"client/values/"]),
    (r"client/files/", {"generated", "yaml", "json", "posix"},
     [CORE_LOGIC, CONVERT, r"client/(files|values)/"]),
    (r"client/study/", {"generated"}, [CORE_LOGIC, CONVERT, CLIENT]),
    (r"client/(commands|render)/", {"generated", "posix"},
     [CORE_LOGIC, CONVERT, CLIENT]),

    # Tests see what the folder they test sees, and GoogleTest.
    (r"tests/core/rpc/", WIRE | {"gtest", "posix"},
     [CORE_LOGIC, RPC, r"tests/support/"]),
    (r"tests/core/joint/", {"gtest"},
     [CORE_LOGIC, r"coordinator/jobs/job_group\.h$",
      r"tests/core/(recover|world)/"]),
    (r"tests/core/", {"gtest", "json", "cli11", "posix"},
     [CORE_LOGIC, OBS, r"core/trust/", r"client/files/job_file\.h$",
      r"tests/(core/(round|world)|support)/"]),
    (r"tests/torch/", {"gtest", "torch", "blas", "json", "posix"},
     [CORE_LOGIC, OBS, r"worker/",
      r"tests/(support/|worker/rounds/training_group\.h$)"]),
    (r"tests/support/tsan/", {"posix", "sanitizer"}, []),
    (r"tests/support/text_proto\.h$", {"gtest", "protobuf"}, []),
    (r"tests/support/",
     {"gtest", "posix", "zlib", "images", "json", "generated"},
     [CORE_LOGIC, OBS, WORKER, COORDINATOR,
      r"tests/support/"]),
    (r"tests/coordinator/", WIRE | {"gtest", "sqlite", "posix"},
     [CORE_LOGIC, OBS, RPC, r"coordinator/",
      r"tests/(coordinator|support)/"]),
    (r"tests/worker/", WIRE | {"gtest", "zlib", "images", "json", "posix"},
     [CORE_LOGIC, OBS, RPC, WORKER, r"worker/(transport|data)/",
      r"tests/(worker|support)/"]),
    (r"tests/client/", WIRE | {"gtest", "json", "yaml", "cli11", "posix"},
     [CORE_LOGIC, RPC, r"client/", r"tests/(client|support)/"]),
    (r"tests/cluster/", WIRE | {"gtest", "posix"},
     [CORE_LOGIC, OBS, RPC, WORKER, r"worker/transport/", r"coordinator/",
      r"tests/support/"]),
    # Every parser, wherever it is.
    (r"tests/fuzz/", WIRE | {"posix"}, "any"),
    (r"tests/bench/torch/", {"benchmark", "torch"},
     [CORE_LOGIC, WORKER, r"worker/torch/"]),
    (r"tests/bench/", WIRE | {"gtest", "benchmark", "posix"},
     [CORE_LOGIC, OBS, RPC, WORKER, r"worker/(transport|data)/",
      r"tests/(bench|support)/"]),
]

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def kind_of(header):
    """Library kind, "own", "standard" or None for a header nobody knows."""
    for kind, pattern in LIBRARIES.items():
        if re.match(pattern, header):
            return kind
    if OWN.match(header):
        return "own"
    return "standard" if STANDARD.match(header) else None


def rule_of(path):
    for pattern, libraries, own in RULES:
        if re.match(pattern, path):
            return libraries, own
    return None


def parent(path):
    return path.rpartition("/")[0]


def includes(tree, path):
    """Yields (line number, opening mark, header)."""
    for number, line in enumerate(tree.lines(path), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def judge(tree, path, mark, header):
    """What is wrong with this include, or None."""
    libraries, own = rule_of(path)
    kind = kind_of(header)
    if kind is None:
        return (f'"{header}" is no header that tests/lint/include_rule.py '
                "knows; write the path from the top of the tree")
    if kind in ("standard", "absl"):
        return None
    if kind != "own":
        if libraries != "any" and kind not in libraries:
            return f"may not include {kind} ({header}): the include rule"
        return None
    if mark == "<":
        return f"{header} is ours: include it with quotes"
    if not tree.exists(header) and header not in MADE:
        return f"{header} does not exist"
    if path.startswith("tests/") and parent(path) == parent(header):
        return None
    if own != "any" and not any(re.match(p, header) for p in own):
        return f"may not include {header}: the include rule"
    return None


def check(tree):
    for path in tree.sources():
        if rule_of(path) is None:
            yield Problem(path, 0, "no rule of tests/lint/include_rule.py "
                          "covers this folder")
            continue
        for number, mark, header in includes(tree, path):
            why = judge(tree, path, mark, header)
            if why:
                yield Problem(path, number, why)
