"""deploy/machines.sh: what it does over ssh, in which order.  An `ssh` that
only writes down what it is asked takes the place of the real one."""

import os

from mesh_case import ROOT, ProcessCase, run

TOKEN = "0123abcd.secret.print"

# Arguments: -o OPTION..., HOST, COMMAND.  A host that has joined has a file
# here; root@... is root there; nobody reaches `away`.
SSH = f"""#!/bin/bash
[[ $1 != -G ]] || {{ echo "hostname ${{2#*@}}.lan"; exit; }}
echo "ssh $*" >>"$FAKE/calls"
while [[ $1 == -o ]]; do shift 2; done
case "$1 $2" in
  *away*) echo "ssh: cannot reach away" >&2; exit 255 ;;
  root@*"id -u") echo 0 ;;
  *"id -u") echo 1000 ;;
  *"grep -qF"*) [[ ! -e $FAKE/elsewhere ]] ;;
  *"grep -q"*) [[ -e $FAKE/coordinator ]] ;;
  *"test -s"*) [[ -e $FAKE/joined-$1 ]] ;;
  *mktemp*) echo /tmp/there ;;
  *"enable paceline-coordinator"*) touch "$FAKE/coordinator" ;;
  *"token create"*) echo {TOKEN} ;;
  *"paceline-worker join"*)
    read -r token
    [[ $token == {TOKEN} && $1 != *full* ]] && touch "$FAKE/joined-$1" ;;
esac
"""


class MachinesScript(ProcessCase):
    def setUp(self):
        super().setUp()
        for name, text in (("ssh", SSH),
                           ("scp", '#!/bin/sh\n'
                                   'echo "scp $*" >>"$FAKE/calls"\n'),
                           ("paceline", '#!/bin/sh\necho "paceline $*" '
                                        f'>>"$FAKE/calls"\necho {TOKEN}\n')):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        for package in ("coordinator", "client", "worker"):
            (self.folder / f"paceline-{package}_1_amd64.deb").touch()

    def run_script(self, *arguments):
        """The finished script, and the calls that it made."""
        calls = self.folder / "calls"
        calls.write_text("")
        finished = run(ROOT / "deploy" / "machines.sh", "--packages",
                       self.folder, *arguments, FAKE=str(self.folder),
                       PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertNotIn(TOKEN, calls.read_text() + finished.stderr)
        return finished, calls.read_text().splitlines()

    def assert_in_order(self, lines, *parts):
        rest = iter(lines)
        for part in parts:
            self.assertTrue(any(part in line for line in rest),
                            f"no '{part}' after the ones before in {lines}")

    def test_the_first_host_gets_the_coordinator_and_all_join_it(self):
        finished, calls = self.run_script("root@one", "two")

        self.good(finished)
        self.assert_in_order(
            calls, "scp", "root@one env DEBIAN", "tls = true",
            "restart paceline-coordinator", "scp",
            "root@one env DEBIAN", "root@one paceline token create",
            "root@one read -r token && paceline-worker join one.lan:7400",
            "root@one systemctl enable paceline-worker", "two id -u", "scp",
            "two sudo -n env DEBIAN",
            "root@one paceline token",
            "two read -r token && sudo -n paceline-worker join one.lan:7400",
            "two sudo -n systemctl enable paceline-worker")
        for line in calls:  # each is one line
            self.has(line, "BatchMode=yes", "ForwardAgent=no")
        # Each is shown to the user as well.
        self.assertEqual(finished.stderr.count("\n+ ssh -o") + 1,
                         sum(line.startswith("ssh") for line in calls))

    def test_what_has_been_done_is_left_alone(self):
        self.run_script("one", "two")

        finished, calls = self.run_script("one", "two", "three")

        self.ended(finished, 0, "one: the coordinator runs already",
                   "one: has joined already", "two: has joined already")
        changed = [line for line in calls
                   if "apt-get" in line or "join" in line]
        self.assertEqual(len(changed), 2, changed)
        self.assert_in_order(changed, "three sudo", "three read")

    def test_one_that_fails_does_not_stop_the_others(self):
        finished, calls = self.run_script("one", "away", "full", "two")

        self.ended(finished, 1, "not in the mesh: away full;")
        self.assertTrue((self.folder / "joined-two").exists())
        self.assertFalse(any("full sudo -n systemctl" in line
                             for line in calls), calls)

    def test_a_machine_that_cannot_join_is_told_and_left_alone(self):
        for name in ("joined-two", "elsewhere"):
            (self.folder / name).touch()
        for arguments, why in (
                (("--coordinator", "c:7400", "two"),
                 "two: has joined another mesh"),
                # Without its coordinator.
                (("away", "two"), "nothing was joined")):
            finished, calls = self.run_script(*arguments)

            self.ended(finished, 1, why)
            self.assertFalse([line for line in calls if "scp" in line])

    def test_a_coordinator_elsewhere_gives_tokens_to_who_is_logged_in(self):
        finished, calls = self.run_script("--coordinator", "pi:7411", "one")

        self.good(finished)
        self.assert_in_order(
            calls, "one sudo", "paceline --coordinator pi:7411 token create",
            "paceline-worker join pi:7411")
        self.assertFalse(any("coordinator_1" in line for line in calls))

    def test_refuses_what_it_cannot_do_before_it_calls_anybody(self):
        for arguments, code, why in (
                ((), 2, "which machines"), (("-v", "one"), 2, "-v"),
                (("--coordinator", "pi", "one"), 2, "HOST:PORT"),
                (("--packages", "/nowhere", "one"), 1, "need the packages")):
            finished, calls = self.run_script(*arguments)

            self.ended(finished, code, why)
            self.assertEqual(calls, [])
