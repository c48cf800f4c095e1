#!/usr/bin/python3
"""How soon a browser shows 200 workers and 50 jobs, and a change of them: the
first paint within a second, an update within 100 ms."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "process"))

from watch_test import browser  # pylint: disable=wrong-import-position

FIRST_PAINT_MS = 1000
UPDATE_MS = 100
SECONDS = 20

# From a message's arrival to the end of the layout that it leads to.
WATCH = """
window.took = [];
const inner = window.show;
window.show = () => {
  const begin = performance.now();
  inner();
  document.body.getBoundingClientRect();
  window.took.push(performance.now() - begin);
};
"""


def measure(page):
    driver = browser(1280)
    try:
        driver.get(page)
        paint = None
        while paint is None:
            paint = driver.execute_script(
                "return performance.getEntriesByName("
                "'first-contentful-paint')[0]?.startTime")
        driver.execute_script(WATCH)
        time.sleep(SECONDS)
        took = sorted(driver.execute_script("return window.took"))
        rows = driver.execute_script(
            "return document.querySelectorAll('tr').length")
        return paint, took, rows
    finally:
        driver.quit()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    arguments = parser.parse_args()
    with subprocess.Popen(
            [arguments.bin / "bench_many_workers", "--serve",
             str(SECONDS + 40), "--workers", "200"],
            stdout=subprocess.PIPE, text=True) as mesh:
        try:
            paint, took, rows = measure(mesh.stdout.readline().strip())
        finally:
            mesh.kill()
    slowest = took[len(took) * 95 // 100]
    print(f"{rows} rows; first paint after {paint:.0f} ms; {len(took)} updates, "
          f"median {took[len(took) // 2]:.1f} ms, 95 of 100 below "
          f"{slowest:.1f} ms")
    return int(paint > FIRST_PAINT_MS or slowest > UPDATE_MS or rows < 250)


if __name__ == "__main__":
    sys.exit(main())
