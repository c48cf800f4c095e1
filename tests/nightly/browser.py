"""Debian's Chromium, driven by Debian's selenium."""

from pathlib import Path

DRIVER = "/usr/bin/chromedriver"


def browser(width, height, *flags, dark=None):
    """None where there is no browser.  dark: of a device with that width and
    height, whatever the window's are, and that taste."""
    try:
        from selenium import webdriver  # pylint: disable=import-error
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None
    if not Path(DRIVER).exists():
        return None
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", f"--window-size={width},{height}",
                 *flags):
        options.add_argument(flag)
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    if dark is not None:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                               {"width": width, "height": height,
                                "deviceScaleFactor": 1, "mobile": width < 600})
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme",
                           "value": "dark" if dark else "light"}]})
    return driver
