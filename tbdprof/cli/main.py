"""The command line: one small function per command; results go to stdout, everything else to stderr."""

import sys
from pathlib import Path
from typing import Any

import click

from tbdprof.cli import streams
from tbdprof.cli.options import (
    AS_JSON,
    FILE,
    NEW,
    SALVAGE,
    VERBOSE,
    CompareCommand,
    ModelCommand,
    RunCommand,
    of_advise,
    of_part,
    of_run,
    of_sweep,
    of_train_check,
)
from tbdprof.errors import UsageError

FORMATS = ("sqlite", "csv", "parquet", "perfetto", "openmetrics")  # of `tbdprof export`


def main() -> None:
    """Run the command line; a problem the user can act on is one line on stderr and its own exit code.

    A failure of tbdprof itself is one line, too, which asks for a report, and exit code 1; `-v` adds the traceback.
    """
    streams.prepare()
    try:
        code = cli.main(standalone_mode=False)
    except BrokenPipeError:
        streams.discard_output()
        code = 1  # the reader of stdout has ended and reports that itself
    except Exception as error:  # noqa: BLE001 - what reaches this is reported in one line
        code = streams.failed(error)
    sys.exit(code if isinstance(code, int) else 0)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="tbdprof")
@click.pass_context
def cli(ctx: click.Context, /) -> None:
    """Profile deep-learning training: where memory and time go, and how well the device is used.

    Begin with `tbdprof doctor`, which says what works here, then `tbdprof list` and `tbdprof run`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command(cls=RunCommand, context_settings={"ignore_unknown_options": True})
@of_run
@click.pass_context
def run(ctx: click.Context, /, **typed: Any) -> int:
    """Profile a model of the suite or a script, and report on it.

    A script stays unchanged: its command follows --.
    """
    from tbdprof.cli import commands, pages

    return commands.run_typed(commands.Typed(script=ctx.obj, **typed), pages.planned if typed["html"] else None)


@cli.command()
@click.argument("file", type=FILE)
@VERBOSE
def watch(file: Path) -> int:
    """Show a run while it goes on, from another terminal.

    FILE is the recording that the run writes. Watching changes nothing in the run.

    Exit code: 0 the recording has its end, 1 its process is gone without one.
    """
    from tbdprof.analysis.summary import summarize
    from tbdprof.cli.live.watch import watch as watch_run

    return watch_run(file, summarize)


@cli.command(cls=RunCommand, context_settings={"ignore_unknown_options": True})
@of_sweep
@click.pass_context
def sweep(ctx: click.Context, /, **typed: Any) -> int:
    """Run models or a script at many settings, and report on all.

    A script's command follows --, with {NAME} in the place of a setting. A sweep that was interrupted goes on with:
    tbdprof sweep -o DIR
    """
    from tbdprof.cli import sweeps
    from tbdprof.sweep.gathering import load_sweep

    given = sweeps.Typed(script=ctx.obj, **typed)
    interrupted = sweeps.run_typed(given)
    return interrupted or sweeps.report(load_sweep(given.output), as_json=given.as_json)


@cli.command(cls=ModelCommand, context_settings={"ignore_unknown_options": True})
@of_advise
def advise(**typed: Any) -> int:
    """Try a model's switches, and rank them by what each gained.

    The model first runs without them. Then the switches are tried that the verdict on this run points at, and a few
    others. The same command goes on with what was interrupted.
    """
    from tbdprof.cli import advising

    return advising.run_typed(advising.Typed(**typed))


@cli.command()
@click.argument("folders", type=FILE, nargs=-1, required=True, metavar="DIR [DIR]")
@click.option("-o", "--output", type=NEW, required=True, metavar="DIR", help="A new folder for the figures.")
@click.option("--format", "form", type=click.Choice(["png", "svg", "both"]), default="both", show_default=True)
@click.option("--html", is_flag=True, help="Write them as one page for a browser instead; -o names the page.")
@VERBOSE
def figures(folders: tuple[Path, ...], output: Path, form: str, html: bool) -> None:
    """Draw the TBD paper's figures and tables from a sweep.

    From one sweep: figures 4 to 6 and 8, and tables V and VI. From two: also figure 7, which compares their devices.
    """
    from tbdprof.cli.figures import draw, draw_page
    from tbdprof.sweep.gathering import load_sweep

    sweeps = [load_sweep(folder) for folder in folders]
    if html:
        draw_page(sweeps, folders, output)
        return
    draw(sweeps, folders, output, ("png", "svg") if form == "both" else (form,))


@cli.command()
@click.argument("paths", type=FILE, nargs=-1, required=True, metavar="DIR|FILE...")
@AS_JSON
@VERBOSE
def observations(paths: tuple[Path, ...], as_json: bool) -> None:
    """Test the TBD paper's observations on sweeps and recordings."""
    from tbdprof.analysis.observations.cases import of_recording, of_sweep
    from tbdprof.analysis.observations.judging import observe
    from tbdprof.analysis.summary import summarize
    from tbdprof.cli.opening import opened
    from tbdprof.report import observations as reports
    from tbdprof.sweep import is_folder
    from tbdprof.sweep.gathering import load_sweep

    cases = []
    for path in paths:
        cases += of_sweep(load_sweep(path)) if is_folder(path) else of_recording(summarize(opened(path)))
    found = observe(cases)
    streams.emit(reports.render_json(found) if as_json else reports.render(found, color=sys.stdout.isatty()))


@cli.command()
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("--full", is_flag=True, help="Print every kernel, layer and tensor, and the roofline.")
@SALVAGE
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which is always in full.")
@click.option("--html", is_flag=True, help="Write a page for a browser instead; it needs no network.")
@click.option("-o", "--output", type=NEW, metavar="PAGE", help="Name of the page; by default the file's, with .html.")
@VERBOSE
def report(files: tuple[Path, ...], full: bool, salvage: bool, as_json: bool, html: bool, output: Path | None) -> None:
    """Report on a recording, on several, or on a sweep.

    Several recordings are compared as ranks of one run; the name that their files share stands for all of them.
    """
    from tbdprof.cli import pages, reporting
    from tbdprof.sweep import is_folder

    if html or output is not None:
        _refuse_page(output, html=html, as_json=as_json)
        pages.write(files, output, salvage=salvage)
        return
    if len(files) == 1 and is_folder(files[0]):
        from tbdprof.cli import sweeps
        from tbdprof.sweep.gathering import load_sweep

        sweeps.report(load_sweep(files[0]), as_json=as_json)
        return
    reporting.report(files, full=full, salvage=salvage, as_json=as_json, color=sys.stdout.isatty())


@cli.command(cls=CompareCommand)
@click.argument("sides", nargs=-1, required=True, metavar="A B [C]...")
@click.option("--fail-if", multiple=True, metavar="LIMIT", help="Exit with 1 if this holds: 'throughput < -5%'.")
@click.option("--anyway", is_flag=True, help="Compare different models and unlike repeats, too.")
@AS_JSON
@click.option("--html", is_flag=True, help="Write a page for a browser instead; it needs no network.")
@click.option("-o", "--output", type=NEW, metavar="PAGE", help="Name of the page; by default comparison.html.")
@VERBOSE
def compare(
    sides: tuple[str, ...], fail_if: tuple[str, ...], anyway: bool, as_json: bool, html: bool, output: Path | None
) -> int:
    """Compare recordings, or sweeps, with the first one.

    Repeats of one thing are joined with commas: tbdprof compare a1.tbd,a2.tbd,a3.tbd b1.tbd,b2.tbd,b3.tbd
    """
    from tbdprof.cli import comparing

    _refuse_page(output, html=html, as_json=as_json)
    page = output or Path("comparison.html") if html else None
    return comparing.compare(sides, fail_if, anyway=anyway, color=sys.stdout.isatty(), as_json=as_json, output=page)


@cli.command()
@of_part
def kernels(**typed: Any) -> None:
    """Print each kernel's time, utilization and place under the roofline."""
    _print_part("kernels", **typed)


@cli.command()
@of_part
def layers(**typed: Any) -> None:
    """Print each layer's time, forward and backward."""
    _print_part("layers", **typed)


@cli.command()
@of_part
def memory(**typed: Any) -> None:
    """Print where memory went, and what held it at the peak."""
    _print_part("memory", **typed)


@cli.command()
@click.argument("file", type=FILE)
@click.option("-o", "--output", type=NEW, required=True, metavar="TARGET", help="A file; of csv and parquet, a folder.")
@click.option("--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help="Of TARGET.")
@click.option("--force", is_flag=True, help="With openmetrics: overwrite TARGET.")
@SALVAGE
@VERBOSE
def export(file: Path, output: Path, form: str, force: bool, salvage: bool) -> None:
    """Write a recording in another format.

    sqlite, csv and parquet are plain tables, perfetto is a trace, and openmetrics has the figures for Prometheus.
    """
    from tbdprof.cli import reporting

    reporting.export(file, output, form, force=force, salvage=salvage)


@cli.command(name="train-check")
@of_train_check
def train_check(**typed: Any) -> int:
    """Check that a model learns.

    It is trained on small generated data, and judged on other data that was held out.
    """
    from tbdprof.cli import commands

    return commands.train_check(**typed)


@cli.command(name="list")
@click.option("--table", is_flag=True, help="Print the models and data sets as tables II and III of the TBD paper.")
@AS_JSON
@VERBOSE
def list_models(table: bool, as_json: bool) -> None:
    """List the models, and where each can run here."""
    from tbdprof.report import models

    if table:
        streams.emit(models.overview_as_json() if as_json else models.overview_as_text())
    else:
        streams.emit(models.as_json() if as_json else models.as_table())


@cli.command()
@click.option("--device", default="cuda:0", metavar="cuda:N", show_default=True, help="The GPU to examine in detail.")
@AS_JSON
@VERBOSE
def doctor(device: str, as_json: bool) -> None:
    """Show what works here, what is missing, and how to get it."""
    from tbdprof.doctor.checks import examine
    from tbdprof.report import doctor_report

    examination = examine(device=device)
    streams.emit(doctor_report.as_json(examination) if as_json else doctor_report.as_text(examination))


def _print_part(part: str, **typed: Any) -> None:
    from tbdprof.cli.reporting import print_part

    print_part(part, **typed, color=sys.stdout.isatty())


def _refuse_page(output: Path | None, *, html: bool, as_json: bool) -> None:
    """Raise UsageError where the name of a page is given for none, or a page and JSON are asked for at once."""
    if output is not None and not html:
        raise UsageError("-o names the page: add --html")
    if html and as_json:
        raise UsageError("--html writes a page and --json prints JSON: give one of them")
