#!/usr/bin/env python3
"""Draws every panel with Grafana's own components, in a headless Chromium.

  dashboards_render.py [--out build/dashboards] [--png FOLDER]

Takes the answers that dashboards_proof.py left in --out.  npm installs
@grafana/ui and its like there, in the versions of dashboards_page/package.json,
and esbuild bundles dashboards_page/page.jsx with them.  Writes NAME.png of each
dashboard to --png, by default --out.  A panel that throws, or draws nothing,
is an error.  The Grafana server itself is not run.
"""

import argparse
import io
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.support.ui import WebDriverWait

PAGE = Path(__file__).resolve().parent / "dashboards_page"
DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"
WIDTH = 1420
PATIENCE_SECONDS = 60
COLOURS = 96  # of a PNG, which keeps it small

HTML = """<!doctype html><meta charset="utf-8">
<link rel="stylesheet" href="page.css">
<style>body { margin: 0; overflow: hidden }</style><div id="root"></div>
<script>
window.problems = [];
window.onerror = (message) => { window.problems.push(String(message)); };
window.answers = %s;
window.dashboard = %s;
</script><script src="page.js"></script>
"""

# A panel that draws has marks: pixels on a canvas, shapes, or text in its
# content.  Returns the titles of those that have none.
EMPTY = """
return window.answers.dashboards.find((d) => d.title === window.dashboard)
  .panels.filter((panel) => panel.type !== 'row').filter((panel) => {
    const place = document.getElementById(`panel-${panel.id}`);
    if (place === null) return true;
    if (panel.type === 'timeseries') {
      const canvas = place.querySelector('canvas');
      if (canvas === null || canvas.width === 0) return true;
      return !canvas.getContext('2d').getImageData(
        0, 0, canvas.width, canvas.height).data.some((byte) => byte > 0);
    }
    if (panel.type === 'stat' || panel.type === 'bargauge') {
      return !/[0-9]/.test(place.innerText.replace(panel.title, ''));
    }
    return place.querySelectorAll('rect').length === 0;
  }).map((panel) => panel.title);
"""


def bundle(folder):
    """page.js and page.css in `folder`."""
    for name in ("package.json", "page.jsx"):
        shutil.copy(PAGE / name, folder)
    # Scripts of packages are not run; none of these needs one.
    subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit",
                    "--no-fund", "--legacy-peer-deps", "--loglevel=error"],
                   cwd=folder, check=True)
    subprocess.run(["node_modules/.bin/esbuild", "page.jsx", "--bundle",
                    "--outfile=page.js", "--jsx=automatic",
                    "--loader:.svg=dataurl", "--loader:.ttf=dataurl",
                    "--log-level=error",
                    '--define:process.env.NODE_ENV="production"'],
                   cwd=folder, check=True)


def browser(profile):
    options = Options()
    for each in ("--headless", "--no-sandbox", "--disable-gpu",
                 "--allow-file-access-from-files", f"--user-data-dir={profile}",
                 f"--window-size={WIDTH},1000"):
        options.add_argument(each)
    return webdriver.Chrome(options=options)


def draw(driver, folder, answers, title, png):
    """What is wrong."""
    page = folder / "page.html"
    page.write_text(HTML % (json.dumps(answers), json.dumps(title)),
                    encoding="utf-8")
    driver.get(page.resolve().as_uri())
    problems, empty = [], ["not drawn yet"]

    def drawn(_):
        problems[:] = driver.execute_script("return window.problems")
        empty[:] = driver.execute_script(EMPTY)
        return problems or not empty
    try:
        WebDriverWait(driver, PATIENCE_SECONDS).until(drawn)
    except Exception:  # pylint: disable=broad-except
        problems.append(f"nothing is drawn in: {', '.join(empty)}")
    height = driver.execute_script("return document.body.scrollHeight")
    driver.set_window_size(WIDTH, height + 100)
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    picture = picture.convert("RGB").crop((0, 0, WIDTH, height))
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(png, optimize=True)
    print(f"{png}: {png.stat().st_size // 1024} KiB", flush=True)
    return [f"{title}: {each}" for each in problems]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/dashboards"))
    parser.add_argument("--png", type=Path)
    arguments = parser.parse_args()
    bundle(arguments.out)
    answers = json.loads(
        (arguments.out / "answers.json").read_text(encoding="utf-8"))
    wrong = []
    with tempfile.TemporaryDirectory() as profile:
        driver = browser(profile)
        try:
            for path in sorted(DASHBOARDS.glob("*.json")):
                title = json.loads(path.read_text(encoding="utf-8"))["title"]
                png = (arguments.png or arguments.out) / f"{path.stem}.png"
                wrong += draw(driver, arguments.out, answers, title, png)
        finally:
            driver.quit()
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
