"""A browser for the tests of pages: headless Chromium, driven by Playwright."""

import shutil

import pytest
from drawn import DESKTOP

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NOT_RUN = (
    "so the report was not opened in a browser: figures, sliders, themes, accessibility and print were not looked at"
)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason=f"Playwright is not here, {NOT_RUN}")
    if CHROMIUM is None:
        pytest.skip(f"Chromium is not here, {NOT_RUN}: install the system's package `chromium`.")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, request):
    """Open the report of a module, or another page.

    The test fails at the end if the page complained or asked for anything, or if hostile text did something.
    """
    seen, contexts = [], []

    def open_(viewport=DESKTOP, path=None, **options):
        path = path or request.getfixturevalue("report")
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: seen.append(dialog.message))
        page.on("request", lambda request: seen.append(request.url) if _outside(request.url, path) else None)
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            assert page.evaluate("window.bad") is None
        return page

    yield open_
    for context in contexts:
        context.close()
    assert seen == []


def _outside(url, path):
    return url != path.as_uri() and not url.startswith((f"{path.as_uri()}#", "data:"))
