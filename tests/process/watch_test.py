"""People watch the mesh in a terminal and in a browser, while workers and the
coordinator are killed."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

from mesh_case import (ENDLESS, PATIENCE_SECONDS, SMALL, MeshCase, eventually,
                       program)
from browser import browser

# Its name is no markup.
NAMED = f"""name: "<img src=x onerror=document.title='hacked'>"{SMALL}"""
# What the page has of a curve of which a point comes again with another loss,
# and then of the next attempt.
MERGE = """
const points = (attempt, ...curve) => {
  const job = {id: '9', attempt, spec: {}};
  merge({jobs: [{...job, curve: curve.map(([step, loss]) => ({step, loss}))}]});
  return mesh.jobs.get('9').points.map(point => [point.step, point.loss]);
};
points('1', [1, 3], [2, 5]);
return [points('1', [1, 4]), points('2', [1, 3])];
"""
# Screenshots are kept there, where somebody wants them.
KEPT = os.environ.get("PACELINE_SCREENSHOTS")


class Terminal:
    """A program on a terminal of its own, and what it has drawn last."""

    def __init__(self, columns, rows, *command, **environment):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", **environment)
            os.execv(command[0], list(command))
        self.text = ""
        self.looked_at = 0  # screens before
        self.resize(columns, rows)

    def resize(self, columns, rows):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ,
                    struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.end], [], [], 0)[0]:
            try:
                got = os.read(self.end, 65536)
            except OSError:  # the program has ended
                return
            self.text += got.decode(errors="replace")

    def screens(self):
        """Everything that was drawn, oldest first, without colours."""
        self.read()
        return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen).split("\r\n")
                for screen in self.text.split("\x1b[H")[1:]]

    def shows(self, text):
        """Waits until a screen has `text`, from the one on that was last
        waited for: what is there for a moment only is seen as well."""
        def found():
            for at, screen in enumerate(self.screens()):
                if at >= self.looked_at and text in "\n".join(screen):
                    self.looked_at = at
                    return True
            return False
        return eventually(found)

    def interrupt(self):
        """Ctrl-C; the exit code."""
        os.write(self.end, b"\x03")
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read()
                os.close(self.end)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None


class Top(MeshCase):
    light = True

    def shows(self, terminal, *texts):
        for text in texts:
            self.assertTrue(terminal.shows(text), terminal.text)

    def test_a_terminal_shows_the_mesh_through_kills_and_sizes(self):
        self.start(4)
        self.detach(NAMED, ENDLESS, "train.evaluate_every=0")
        terminal = Terminal(80, 24, program("paceline"), "top",
                            PACELINE_COORDINATOR=self.address)
        self.shows(terminal, "training", "3 busy, 1 idle", "to w")

        self.kill(self.holder(0))
        self.shows(terminal, " lost ", "3 busy, 1 idle")

        terminal.resize(20, 10)
        self.soon(lambda: len(terminal.screens()[-1]) <= 10
                  and all(len(line) <= 20 for line in terminal.screens()[-1]))

        terminal.resize(100, 30)
        os.kill(self.pid_of_coordinator(), signal.SIGKILL)
        self.shows(terminal, "does not answer", "workers: ")
        for screen in terminal.screens():
            self.assertLessEqual(max(map(len, screen)), 100)

        self.assertEqual(terminal.interrupt(), 130)
        self.has(terminal.text, "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h")
        self.stop()


class Page(MeshCase):
    light = True

    def open(self, width, dark=False):
        driver = browser(width, 1400, dark=dark)
        if driver is None:
            self.skipTest("no Chromium, or no python3-selenium")
        self.addCleanup(driver.quit)
        driver.get(f"http://{self.http}/")
        return driver

    def text(self, driver):
        return driver.execute_script("return document.body.innerText")

    def shows(self, driver, *parts):
        self.soon(lambda: all(part in self.text(driver) for part in parts),
                  lambda: f"not all of {parts} in {self.text(driver)}")

    def keep(self, driver, name):
        """A screenshot, which is not all of one colour."""
        picture = driver.get_screenshot_as_png()
        self.assertGreater(len(picture), 10_000, name)
        if KEPT:
            Path(KEPT).mkdir(parents=True, exist_ok=True)
            (Path(KEPT) / f"{name}.png").write_bytes(picture)

    def fits(self, driver, width):
        """Nothing sticks out to the right."""
        self.assertLessEqual(
            driver.execute_script("return document.body.scrollWidth"), width)

    def test_a_browser_shows_the_mesh_through_kills(self):
        self.start(4)
        self.submit(NAMED, "name=first-try", "train.steps=2")
        job = self.detach(NAMED, "name=digits", ENDLESS,
                          "train.evaluate_every=0")
        desktop = self.open(1280)
        self.shows(desktop, "3 busy, 1 idle", "stage 0", "as measured", "Loss",
                   "Links", "waits", "jobs: 1 running, 1 succeeded")
        self.keep(desktop, "page-before")
        phone = self.open(390, dark=True)
        self.shows(phone, "3 busy, 1 idle", "as measured")
        self.fits(phone, 390)
        self.keep(phone, "page-phone-dark")

        self.kill(self.holder(0))
        self.shows(desktop, "lost")
        self.keep(desktop, "page-killed")
        self.keep(phone, "page-phone-killed")
        self.shows(desktop, "It went on from step")
        self.keep(desktop, "page-after")

        os.kill(self.pid_of_coordinator(), signal.SIGKILL)
        self.shows(desktop, "does not answer")
        self.keep(desktop, "page-coordinator-killed")
        self.soon(lambda: "does not answer" not in self.text(desktop))
        self.shows(desktop, "stage 0", "busy")
        self.stop(job)
        self.shows(desktop, "stopped")

        self.submit(NAMED, "train.steps=2")
        self.shows(desktop, "<img src=x")
        self.assertNotEqual(desktop.title, "hacked")
        self.fits(desktop, 1280)
        self.shows(phone, "<img src=x")
        self.fits(phone, 390)
        self.assertEqual(desktop.execute_script(MERGE), [[[1, 4], [2, 5]],
                                                         [[1, 3]]])
