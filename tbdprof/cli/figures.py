"""The work of `tbdprof figures`: sweeps in, a folder of figures, captions and tables out."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tbdprof.cli import page_file
from tbdprof.cli.streams import emit
from tbdprof.errors import UsageError
from tbdprof.facts.file.placing import new
from tbdprof.report.figures import captions, drawing, kernel_tables, panels
from tbdprof.report.plain import plain
from tbdprof.report.sweep import document
from tbdprof.results.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 2  # sweeps


def draw(sweeps: Sequence[Sweep], folders: Sequence[Path], output: Path, endings: Sequence[str]) -> None:
    """Draw the figures of a sweep, or of two, into a new folder, and name the files; `folders` are the sweeps' own."""
    _refuse(sweeps, folders)
    shown = [plain(sweep) for sweep in sweeps]
    names = []
    with new(output) as part:
        part.mkdir()
        said = []
        for number, figure, text in _figures(shown, [plain(str(folder)) for folder in folders]):
            names += [f"figure-{number}.{ending}" for ending in endings]
            for ending in endings:
                drawing.save(figure, part / f"figure-{number}.{ending}")
            said.append(f"**Figure {number}.** {text}")
        names += ["captions.md", "kernels.md", "kernels.csv"]
        (part / "captions.md").write_text("\n\n".join(said) + "\n", encoding="utf-8")
        _write_tables(shown[0], part)
    emit("\n".join(str(output / name) for name in names))


def draw_page(sweeps: Sequence[Sweep], folders: Sequence[Path], output: Path) -> None:
    """Write the page of a sweep, or of two, into a new file."""
    page = page_file.planned(output)
    from tbdprof.report.page import sweep as pages  # its libraries are optional

    _refuse(sweeps, folders)
    page.save(pages.render(sweeps, [document(sweep) for sweep in sweeps], [*map(str, folders)]))


def _refuse(sweeps: Sequence[Sweep], folders: Sequence[Path]) -> None:
    """Raise UsageError for more than two sweeps, and for one with nothing to draw."""
    if len(sweeps) > MOST:
        raise UsageError(f"{len(sweeps)} sweeps: give one, or two whose devices are to be compared")
    for sweep, folder in zip(sweeps, folders, strict=True):
        _check(sweep, folder)


def _check(sweep: Sweep, folder: Path) -> None:
    """Raise UsageError if a sweep has nothing to draw."""
    if not sweep.batch:
        raise UsageError(f"{folder} sweeps no batch size: name the script's setting batch, batch_size, bs or b")
    if not any(point.figures is not None for point in sweep.points):
        raise UsageError(f"no point of {folder} has a recording: run it first, with tbdprof sweep -o {folder}")


def _figures(sweeps: Sequence[Sweep], names: Sequence[str]) -> Iterator[tuple[int, "Figure", str]]:
    """Yield each figure with its number and its caption."""
    one = sweeps[0]
    for number, found in ((4, panels.throughput(one)), (5, panels.busy(one)), (6, panels.fp32(one))):
        text = captions.caption(number, [one])
        yield number, drawing.lines(found, text), text
    if len(sweeps) == MOST:
        text = captions.caption(7, sweeps)
        yield 7, drawing.groups(panels.devices(one, sweeps[1], (names[0], names[1])), text), text
    text = captions.caption(8, [one])
    yield 8, drawing.stacks(panels.memory(one), text), text


def _write_tables(sweep: Sweep, folder: Path) -> None:
    chosen = kernel_tables.chosen(sweep)
    texts = [kernel_tables.markdown(label, point, sweep.batch) for label, point in chosen.items()]
    (folder / "kernels.md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    rows = [row for label, point in chosen.items() for row in kernel_tables.rows(label, point, sweep.batch)]
    with (folder / "kernels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([kernel_tables.HEADER, *rows])
