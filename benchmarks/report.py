"""How long a report over 43 panels takes to open in Chromium, against the two seconds that are promised.

The panels are those of the gallery, again and again. What is timed is the browser: from asking for the file to the
first sight of the page (first contentful paint) and to the end of loading, whichever is later.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from unlazy._errors import UserError
from unlazy.report import Contents, write_report
from unlazy.report.record import read_record

PANELS, PROMISED, REPEATS = 43, 2.0, 5
_TIMES = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return Math.max(paint.startTime, performance.getEntriesByType("navigation")[0].loadEventEnd) / 1000;
}"""


def measure() -> list[dict[str, Any]]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise UserError("This benchmark needs Playwright: pip install playwright.") from None
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise UserError("This benchmark needs Chromium: install the system's package `chromium`.")
    gallery = sorted((Path(__file__).parents[1] / "docs" / "gallery").glob("*.json"))
    found = itertools.cycle([read_record(path) for path in gallery])
    records = [msgspec.structs.replace(next(found), panel=f"gallery/fig{index}") for index in range(PANELS)]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = write_report(Contents(records=records), Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        seconds = []
        for _ in range(REPEATS):
            page = browser.new_page()
            page.goto(path.as_uri())
            while not page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
                page.wait_for_timeout(20)
            seconds.append(page.evaluate(_TIMES))
            page.close()
        browser.close()
        row = {"name": f"report, {PANELS} panels", "ratio": PROMISED / max(seconds), "baseline_seconds": PROMISED}
        row |= {"seconds": max(seconds), "error": 0.0, "baseline": "what is promised", "bytes": path.stat().st_size}
        return [row]
