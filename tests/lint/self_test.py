#!/usr/bin/env python3
"""The lint checks catch what they are for, and nothing else."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import dashboards
import formats
import include_rule
import shape
import thread_safety
import words
from tree import Tree


class LintTest(unittest.TestCase):
    """Each test writes a small tree and looks at what a check says of it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()

    def write(self, name, text, executable=False):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if executable else 0o644)

    def said(self, check, *arguments):
        return [str(p) for p in check(Tree(self.root), *arguments)]

    def expect(self, check, *words):
        """It says one thing with these words, or nothing where there are
        none."""
        said = self.said(check)
        self.assertEqual(len(said), bool(words), said)
        for word in words:
            self.assertIn(word, said[0])

    def look(self, check, path, text, *words, executable=False):
        """The same, once that file is written."""
        self.write(path, text, executable)
        with self.subTest(path=path, text=text[:60]):
            self.expect(check, *words)


def table(text):
    """(file, header) pairs of lines that name a file and its headers."""
    return [(file, header) for file, *headers in map(
        str.split, text.strip().splitlines()) for header in headers]


class IncludeRule(LintTest):
    # A file, and headers that it may not include.  The check itself runs over
    # the tree, which is full of those that a file may.
    REFUSED = table("""
core/base/a.cc <spdlog/spdlog.h> "core/model/a.h"
core/model/a.cc <torch/torch.h>
core/plan/a.cc "core/rpc/channel.h" "paceline/v1/types.pb.h"
core/schedule/a.cc "core/obs/log.h"
core/optim/a.cc <sys/socket.h>
core/cluster/a.cc <grpcpp/grpcpp.h>
core/os/a.cc "core/model/a.h"
core/transfer/a.h <xxhash.h>
core/transfer/a.cc <grpcpp/grpcpp.h>
core/rpc/a.cc <yaml-cpp/yaml.h>
core/trust/certificates.cc <grpcpp/grpcpp.h>
core/obs/a.h <prometheus/registry.h> <httplib.h>
core/obs/a.cc <grpcpp/grpcpp.h>
coordinator/brain.cc "coordinator/store/store.h" "coordinator/rpc/service.h"
coordinator/brain.cc <sqlite3.h> "worker/pipeline/link.h"
coordinator/brain.cc "paceline/v1/control.grpc.pb.h"
coordinator/brain.h <grpcpp/grpcpp.h>
coordinator/store/a.cc <grpcpp/grpcpp.h>
coordinator/rpc/a.cc <sqlite3.h>
worker/control/agent.cc <torch/torch.h> "paceline/v1/coordinator.grpc.pb.h"
worker/control/agent.h "worker/torch/engine.h"
worker/transport/a.cc <ATen/ATen.h>
worker/torch/a.cc <grpcpp/grpcpp.h> "worker/transport/a.h"
worker/data/a.cc <sqlite3.h>
core/weights/a.cc <torch/torch.h>
worker/options.cc <grpcpp/grpcpp.h>
client/study/a.cc <yaml-cpp/yaml.h>
client/commands/a.cc <yaml-cpp/yaml.h> <CLI/CLI.hpp> <grpcpp/channel.h>
client/commands/a.cc "client/rpc/grpc_control_client.h"
client/options.cc "client/rpc/grpc_control_client.h"
client/dispatch.cc <CLI/CLI.hpp> <grpcpp/channel.h>
client/files/a.cc <grpcpp/channel.h> "client/render/a.h"
client/values/a.cc "client/files/a.h"
client/render/a.cc <nlohmann/json.hpp>
client/rpc/a.cc <CLI/CLI.hpp> <yaml-cpp/yaml.h>
tests/core/plan/a_test.cc <grpcpp/grpcpp.h>
tests/worker/a_test.cc <torch/torch.h>
tests/cluster/a_test.cc "worker/torch/engine.h"
""")

    def setUp(self):
        super().setUp()
        for _, header in self.REFUSED:
            if include_rule.kind_of(header[1:-1]) == "own":
                self.write(header[1:-1], "#pragma once\n")

    def include(self, path, header, *words):
        self.look(include_rule.check, path,
                  f"int before;\n  #  include {header}\n", *words)

    def test_each_refused_include_is_caught(self):
        for path, header in self.REFUSED:
            self.include(path, header, f"{path}:2:", header[1:-1],
                         "include rule")
            self.write(path, "")
        self.include("core/base/a.cc", "<vector>")

    def test_every_rule_refuses_something(self):
        """A row that lets everything through is a hole, main.cc apart."""
        refused = {id(include_rule.rule_of(p)[0]) for p, _ in self.REFUSED}
        for pattern, libraries, _ in include_rule.RULES:
            if libraries != "any" and not pattern.startswith("tests/"):
                self.assertIn(id(libraries), refused, pattern)

    def test_other_includes_that_are_wrong_are_caught(self):
        for header, why in (
                ("<boost/asio.hpp>", "no header"), ('"link.h"', "no header"),
                ('"../link.h"', "no header"),
                ('"worker/nowhere.h"', "does not exist"),
                ("<worker/pipeline/link.h>", "quotes")):
            self.include("worker/a.cc", header, why)

    def test_a_folder_without_a_rule_is_caught(self):
        self.look(include_rule.check, "core/banana/a.cc", "", "no rule")


ONCE = "#pragma once\n"
A_H, A_CC = "core/base/a.h", "core/base/a.cc"


class Shape(LintTest):
    def test_a_header_has_pragma_once_and_comes_first(self):
        self.look(shape.check_header, A_H, "#ifndef A_H\n#endif\n", ONCE[:-1])
        self.write(A_H, ONCE)
        own, vector = f'#include "{A_H}"\n', "#include <vector>\n"
        self.look(shape.check_header, A_CC, vector + own, f"{A_CC}:1:",
                  "vector")
        self.look(shape.check_header, A_CC, own + vector)

    def test_a_function_of_81_lines_is_caught_and_a_file_of_1001(self):
        for head, indent in (("int f(\n    int a) {\n", ""),
                             ("class C {\n public:\n  int f(\n"
                              "      int a) {\n", "  ")):
            for lines, *words in ((80,), (81, "81 lines")):
                self.look(shape.check_length, A_CC,
                          f"namespace n {{\n\n{head}" +
                          f"{indent}  a++;\n" * (lines - 3) +
                          f"{indent}}}\n}}  // namespace n\n", *words)
        self.look(shape.check_length, A_CC, "\n" * 1000)
        self.look(shape.check_length, A_CC, "\n" * 1001, "1001 lines")
        self.look(shape.check_length, A_CC,
                  "struct S {\n" + "  int a;\n" * 100 + "};\n\n"
                  "const int kT[] = {\n" + "    1,\n" * 100 + "};\n")

    def test_a_sleep_in_a_test_is_caught_but_over_sockets(self):
        for call in ("absl::SleepFor(absl::Seconds(1));", "usleep(5);",
                     "std::this_thread::sleep_for(1ms);"):
            self.look(shape.check_purity, "tests/worker/a_test.cc",
                      f"// sleep(1)\n{call}\n", "a_test.cc:2:")
        self.write("tests/worker/a_test.cc", "")
        self.look(shape.check_purity, "tests/cluster/a_test.cc", "usleep(5);\n")

    def test_a_clock_or_lock_in_logic_is_caught(self):
        for text in ("auto t = absl::Now();", "absl::Mutex mutex_;",
                     "std::cout << 1;", 'getenv("X");'):
            self.look(shape.check_purity, "core/plan/a.cc", text, "logic")

    def test_a_wait_for_a_time_of_day_is_caught(self):
        for text in ("m.AwaitWithTimeout(c, d);", "m.AwaitWithDeadline(c, t);",
                     "m.LockWhenWithTimeout(c, d);",
                     "m.ReaderLockWhenWithDeadline(c, t);",
                     "cv.WaitWithTimeout(&m, d);", "cv.WaitWithDeadline(&m, t);",
                     "n.WaitForNotificationWithTimeout(d);",
                     "n.WaitForNotificationWithDeadline(t);", "absl::CondVar c;",
                     "auto t = absl::Now();", "time(nullptr);",
                     "c.set_deadline(std::chrono::system_clock::now());"):
            for path in ("worker/a.cc", "tests/worker/a_test.cc"):
                self.look(shape.check_clocks, path, text, "monotonic")
                self.look(shape.check_clocks, path, "// " + text)
        path = "tests/process/a_test.py"
        self.look(shape.check_clocks, path, "end = time.time() + 5\n",
                  "a_test.py:1:")
        self.look(shape.check_clocks, path, "end = time.monotonic() + 5\n")
        self.look(shape.check_clocks, "worker/a.cc",
                  "mutex_.AwaitFor(c, d); absl::SleepFor(d);\n"
                  "cv.wait_for(lock, 1s); future.wait_for(1s);\n"
                  "context.set_deadline(DeadlineAfter(d));\n")

    def test_the_top_level_is_fixed(self):
        self.write("scripts/a.py", "")
        said = self.said(shape.check_layout)
        self.assertIn("scripts: is not in the fixed top level (TOP_LEVEL)", said)

    def test_refused_names_and_folders_without_a_readme_are_caught(self):
        self.write("core/README.md", "")
        for path, why in (("core/utils/a.py", "utils"),
                          ("core/notes.md", "README.md files")):
            self.look(shape.check_layout, path, "", why)
            (self.root / path).unlink()
        (self.root / "core/README.md").unlink()
        self.look(shape.check_layout, A_CC, "", "core: has no README.md")
        self.write("core/README.md", "")
        self.look(shape.check_layout, "core/base/b.cc", "")
        self.look(shape.check_layout, "core/base/c.cc", "",
                  "core/base: has no README.md")
        self.look(shape.check_layout, "core/README.md",
                  "- `base/`: below all others\n")

    def test_a_folder_of_many_files_is_caught(self):
        for number in range(24):
            self.write(f"client/{number}.py", "")
        self.look(shape.check_layout, "client/README.md", "")
        self.look(shape.check_layout, "client/one_more.py", "",
                  "client: has 26 files")

    def test_folders_that_include_each_other_are_caught(self):
        self.write("core/plan/a.h", '#include "core/round/a.h"\n')
        self.write("core/round/a.h", "")
        self.write("core/round/rules/a.h", '#include "core/round/b.h"\n')
        self.look(shape.check_mutual_includes, "core/round/b.h",
                  '#include "core/round/rules/a.h"\n')
        self.look(shape.check_mutual_includes, "core/round/b.h",
                  '#include "core/plan/a.h"\n', "core/plan/a.h:1:",
                  "core/round/b.h:1")


class Words(LintTest):
    def test_a_comment_that_begins_without_a_verb_is_caught(self):
        for opener in ("Of a stage.", "Who waits.", "What it says."):
            self.look(words.check_openers, "client/a.h",
                      f"int a;\n  // {opener}\nint b;\n", "client/a.h:2:",
                      "begin with a subject")
        self.look(words.check_openers, "client/a.h", "// The times\n// Of a "
                  "stage.\nint a;  // Of a stage\n// Often.\n")

    def test_a_reference_to_a_page_outside_the_tree_is_caught(self):
        for name in ("DESIGN" " 5", "Issue" " 22", "issue" " 7"):
            self.look(words.check_references, "client/README.md",
                      f"See {name}.\n", "client/README.md:1:")


class Formats(LintTest):
    def test_broken_files_are_caught(self):
        for name, text in (("a.json", "{"), ("a.yaml", "a: [1"),
                           ("a.yml", "a: b: c"), ("a.toml", "a = ")):
            self.look(formats.check_parse, name, text, name)
            (self.root / name).unlink()

    def test_a_configuration_key_must_be_a_flag(self):
        self.write("worker/options.cc", 'option("--listen", x);\n')
        file = "deploy/systemd/worker.toml"
        self.look(formats.check_configuration, file,
                  '# A word = of prose.\n# listen = "a"\n')
        self.look(formats.check_configuration, file, '# listne = "a"\n',
                  "worker.toml:1:", "--listne")

    def test_scripts_are_read_by_bash_and_shellcheck(self):
        good = "#!/usr/bin/env bash\nset -euo pipefail\necho a\n"
        self.write("run", good, executable=True)
        for text, executable, *said in (
                (good, True), (good, False, "not executable"),
                (good + "echo $1\n", True, "shellcheck"),
                ("#!/usr/bin/env bash\necho a\n", True, "pipefail")):
            self.look(formats.check_shell, "a.sh", text, *said,
                      executable=executable)
        self.write("a.sh", good, executable=True)
        self.write("run", good + "if true\n", executable=True)
        self.assertIn("bash -n", self.said(formats.check_shell)[0])

    def test_parts_of_maintainer_scripts_are_read_too(self):
        self.look(formats.check_shell, "a.postrm",
                  "#!/bin/sh\nset -e\n#DEBHELPER#\n")
        self.look(formats.check_shell, "a.postrm", "#!/bin/sh\nrm -rf $1\n",
                  "shellcheck")

    @unittest.skipUnless(formats.clang_format_decides(), "needs version 14")
    def test_clang_format_is_asked(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.look(formats.check_clang_format, A_CC, "int a;\n")
        self.look(formats.check_clang_format, A_CC, "int  a;\n", f"{A_CC}:1:")

    def test_units_are_verified(self):
        unit = (Path(__file__).parents[2] /
                "deploy/systemd/paceline-worker.service").read_text()
        for text, *said in (
                (unit,), (unit + "Restrat=always\n", "Restrat"),
                (unit.replace("CapabilityBoundingSet=\n", ""), "exposure")):
            self.look(formats.check_systemd, "deploy/a.service", text, *said)


SECONDS = "paceline_worker_seconds_total"
WAIT = "paceline_worker_wait_seconds"
RULES, RULES_TEST = "dashboards/rules.yml", "dashboards/rules_test.yml"
ALERT = "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: a > 1\n"


class Dashboards(LintTest):
    def setUp(self):
        super().setUp()
        self.write("worker/control/metrics.h",
                   f'  "{SECONDS}"\n  "{WAIT}"\n')

    def dashboard(self, *expressions, name="dashboards/a.json"):
        self.write(name, json.dumps({"panels": [{"title": "t", "panels": [{
            "title": "inner",
            "targets": [{"expr": e} for e in expressions]}]}]}))

    def test_metrics_and_panels_have_the_same_names(self):
        for expressions, *said in (
                ((f"rate({SECONDS}[1m])", WAIT + "_bucket"),),
                ((SECONDS,), "worker/control/metrics.h:2:", WAIT),
                ((SECONDS, WAIT + "_sum", "paceline_worker_dreams_total"),
                 "dreams", "'inner'")):
            self.dashboard(*expressions)
            self.expect(dashboards.check_metrics, *said)

    def test_an_alert_counts_as_use(self):
        self.dashboard(SECONDS)
        self.look(dashboards.check_metrics, RULES,
                  ALERT.replace("a > 1", WAIT + " > 1"))

    def test_expressions_configuration_and_rules_are_read_by_promtool(self):
        self.dashboard('rate(a{b="$job"}[$__rate_interval])')
        self.expect(dashboards.check_promtool)
        self.dashboard("rate(a[5m]")
        self.expect(dashboards.check_promtool, "'inner'")
        self.dashboard()
        file = "dashboards/prometheus.yml"
        self.look(dashboards.check_promtool, file, "scrape_configz: []\n",
                  "scrape_configz")
        self.write(file, "scrape_configs: []\n")
        self.look(dashboards.check_promtool, RULES, "groups:\n- name: a\n  "
                  "rules:\n  - record: A\n    expr: a >\n", "rules.yml")

    def test_an_annotation_and_metrics_of_the_process_are_read_too(self):
        self.write("dashboards/a.json", json.dumps({"annotations": {"list": [
            {"name": "event", "expr": "paceline_worker_dreams_total"}]}}))
        self.dashboard(SECONDS, WAIT, name="dashboards/b.json")
        self.expect(dashboards.check_metrics, "dreams", "'event'")
        self.dashboard()
        self.look(dashboards.check_metrics, "core/obs/metrics.h",
                  '  "process_open_fds"\n', "process_open_fds")

    def test_a_dashboard_that_differs_from_its_source_is_caught(self):
        self.look(dashboards.check_generated, "dashboards/a.yaml",
                  "uid: a\ntitle: A\nrows: {}\n", "a.json", "generate.py")
        self.look(dashboards.check_generated, "dashboards/a.json", "{}\n",
                  "a.json", "generate.py")

    def test_an_alert_needs_a_runbook_and_a_test_that_passes(self):
        self.write(RULES_TEST, "rule_files: [rules.yml]\ntests: []  # A\n")
        self.look(dashboards.check_promtool, RULES, ALERT, "alert A", "runbook")
        (self.root / RULES_TEST).unlink()
        self.look(dashboards.check_promtool, RULES,
                  ALERT + "    annotations: {runbook: wait}\n",
                  "alert A has no test")
        case = ("rule_files: [rules.yml]\ntests:\n- interval: 1m\n"
                "  input_series:\n  - {series: a, values: '%d'}\n"
                "  alert_rule_test:\n  - eval_time: 0m\n    alertname: A\n"
                "    exp_alerts:\n    - exp_labels: {}\n"
                "      exp_annotations: {runbook: wait}\n")
        self.look(dashboards.check_promtool, RULES_TEST, case % 2)
        self.look(dashboards.check_promtool, RULES_TEST, case % 1,
                  "rules_test.yml")


class ThreadSafety(LintTest):
    HEADER = ('#pragma once\n#include "absl/synchronization/mutex.h"\n'
              "struct C {\n  absl::Mutex mutex;\n"
              "  int value ABSL_GUARDED_BY(mutex) = 0;\n};\n")

    def test_an_unlocked_read_is_caught_and_a_locked_one_passes(self):
        self.write("worker/c.h", self.HEADER)
        commands = []
        lock = "absl::MutexLock lock(&c.mutex);"
        for name, text in (("a", ""), ("b", lock), ("batched", "")):
            file = f"worker/{name}.cc"
            self.write(file, '#include "worker/c.h"\n'
                       f"int f(C& c) {{ {text} return c.value; }}\n")
            if name == "batched":
                batch = "build/Unity/unity_0_cxx.cxx"
                self.write(batch, f'#include "{self.root / file}"\n')
                file = batch
            commands.append({
                "directory": str(self.root), "file": str(self.root / file),
                "command": f"/usr/bin/c++ -DX=1 -I{self.root} -O2 -std=c++20 "
                           f"-o a.o -c {self.root / file}"})
        self.write("build/compile_commands.json", json.dumps(commands))

        said = self.said(thread_safety.check, self.root / "build")

        for each, name in zip(said, ("a", "batched"), strict=True):
            self.assertIn(f"worker/{name}.cc", each)
            self.assertIn("thread-safety", each)

    def test_a_build_folder_without_commands_is_caught(self):
        self.assertEqual(len(self.said(thread_safety.check, self.root)), 1)


if __name__ == "__main__":
    unittest.main()
