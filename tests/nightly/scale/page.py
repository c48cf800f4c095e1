"""How soon a browser shows 200 workers and 50 jobs, and a change of them: the
first paint within a second, an update within 100 ms."""

import subprocess
import time

from browser import browser

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
    driver = browser(1280, 1400, dark=False)
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


def main(run):
    with subprocess.Popen(
            [run.bin / "bench_many_workers", "--serve", str(SECONDS + 40),
             "--workers", "200"], stdout=subprocess.PIPE, text=True) as mesh:
        try:
            paint, took, rows = measure(mesh.stdout.readline().strip())
        finally:
            mesh.kill()
    print(f"{len(took)} updates, median {took[len(took) // 2]:.1f} ms")
    run.at_least("rows", 250, rows)
    run.at_most("first paint, ms", FIRST_PAINT_MS, paint)
    run.at_most("update, ms, 95 of 100", UPDATE_MS, took[len(took) * 95 // 100])
