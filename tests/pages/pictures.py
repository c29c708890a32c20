"""Makes the pictures of the README and the docs from a recording: the first screen of the terminal, and of the page.

    python tests/pages/pictures.py FILE.tbd

They go to `docs/pictures`: `terminal.svg`, as rich draws a terminal, and `page.png`, as Chromium shows the page.
"""

import io
import re
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console

from tbdprof.analysis.summary import summarize
from tbdprof.cli import pages
from tbdprof.facts.file.reading import load
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts import kernel_tables, overview
from tbdprof.results.summary import Summary

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH = 100  # columns
SCREEN = {"width": 1280, "height": 1440}
COLORS = 128  # of the picture of the page: it has few, and is a third as large with these alone


def terminal_picture(summary: Summary, target: Path) -> None:
    """Draw the first screen of the terminal's report; the picture names no font of the network."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, markup=False)
    console.print(overview.view(plain(summary)))
    for table in kernel_tables.view(plain(summary))[:1]:
        console.print()
        console.print(table)
    picture = console.export_svg(title="tbdprof report resnet50.tbd")
    target.write_text(re.sub(r"@font-face \{.*?\}\n?", "", picture, flags=re.DOTALL), encoding="utf-8")


def page_picture(file: Path, summary: Summary, target: Path) -> None:
    """Draw the first screen of the page."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder) / "page.html"
        pages.planned(file, page).write(summary)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport=SCREEN, color_scheme="light")
        shown.goto(page.as_uri())
        shown.wait_for_selector("#memory-chart[data-ready]")
        shown.wait_for_timeout(500)
        found = Image.open(io.BytesIO(shown.screenshot()))
        browser.close()
    found.convert("RGB").quantize(COLORS).save(target, optimize=True)


def main(file: Path) -> None:
    """Make both pictures, and say how large they are."""
    summary = summarize(load(file))
    FOLDER.mkdir(exist_ok=True)
    terminal_picture(summary, FOLDER / "terminal.svg")
    page_picture(file, summary, FOLDER / "page.png")
    for each in sorted(FOLDER.iterdir()):
        print(f"{each}: {each.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
