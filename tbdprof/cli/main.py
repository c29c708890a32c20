"""The command line: one small function per command; results go to stdout, everything else to stderr."""

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tbdprof.errors import TbdprofError

if TYPE_CHECKING:
    from tbdprof.facts.recording import Recording
    from tbdprof.results.summary import Summary

INTERRUPTED = 130
PRECISIONS = ("fp32", "tf32", "fp64", "bf16")


class RunCommand(click.Command):
    """A command that passes everything after `--` to a script, and unknown options to the model."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take out the script's command line before anything is parsed."""
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = args[at + 1 :] if at < len(args) else None
        return super().parse_args(ctx, args[:at])


def main() -> None:
    """Run the command line; a problem the user can act on is one line on stderr and its own exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = _fail("interrupted", INTERRUPTED)
    except click.ClickException as error:
        code = _fail(error.format_message(), error.exit_code)
    except TbdprofError as error:
        code = _fail(str(error), error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout has ended and reports that itself
        code = 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushing the buffer would fail again
        code = _fail("cannot write the output: the disk is full", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> int:
    click.echo(f"tbdprof: {message}", err=True)
    return code


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="tbdprof")
@click.pass_context
def cli(ctx: click.Context, /) -> None:
    """Profile the memory and the use of the device by deep-learning training."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command(cls=RunCommand, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [MODEL OPTIONS] | -- COMMAND")
@click.option("--framework", help="torch, mxnet or tensorflow.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--batch-size", type=int, help="Samples a step (transformer: 32 tokens each); by default the model's.")
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads; by default all cores it may use.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Steps of each clean window: 10 on a CPU, 50 on a GPU.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    help="Steps before the first window; by default until settled.",
)
@click.option("--max-warmup", type=click.IntRange(min=1), help="Steps after which warming up gives up.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many times to record the windows.",
)
@click.option(
    "--data",
    default="synthetic",
    metavar="synthetic|DIR",
    show_default=True,
    help="The folder of the model's data set, or one batch made from the seed.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--power-period",
    type=click.IntRange(min=10),
    default=100,
    show_default=True,
    metavar="MS",
    help="Milliseconds between two samples of a GPU's power and clocks.",
)
@click.option("--exact", is_flag=True, help="On a GPU, count one more step exactly, under Nsight Compute.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to record into.")
@click.option("--force", is_flag=True, help="Overwrite that file.")
@click.option("--require-recording", is_flag=True, help="Exit with 1 if nothing was recorded of a script.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@click.option("-v", "--verbose", is_flag=True, help="Say more about errors.")
@click.pass_context
def run(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    framework: str | None,
    device: str,
    batch_size: int | None,
    precision: str,
    threads: int | None,
    steps: int | None,
    warmup: int | None,
    max_warmup: int | None,
    repeat: int,
    data: str,
    seed: int,
    power_period: int,
    exact: bool,
    output: Path | None,
    force: bool,
    require_recording: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Train a model of the suite, or run a script unchanged (after --), and report on it."""
    from tbdprof.cli import commands
    from tbdprof.launch.request import RunRequest
    from tbdprof.loop.plan import Schedule

    schedule = Schedule(steps=steps, warmup=warmup, max_warmup=max_warmup, repeat=repeat)
    with commands.shown(verbose=verbose):
        if ctx.obj is not None:
            commands.refuse_unheeded(words)
            return commands.run_script(
                ctx.obj,
                framework,
                schedule,
                output,
                force=force,
                as_json=as_json,
                require_recording=require_recording,
                verbose=verbose,
            )
        commands.refuse_for_models(require_recording=require_recording)
        model, options = commands.model_and_options(words)
        request = RunRequest(
            model=model,
            framework=commands.chosen_framework(model, framework),
            device=device,
            batch_size=batch_size,
            precision=precision,
            threads=threads,
            schedule=schedule,
            seed=seed,
            options=options,
            data=commands.folder_of(data),
            output=output,
            force=force,
            power_period_ms=power_period,
        )
        return commands.run_model(request, exact=exact, as_json=as_json, quiet=quiet)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--full", is_flag=True, help="Print every kernel, layer and tensor, and the roofline.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which is always in full.")
def report(file: Path, full: bool, as_json: bool) -> None:
    """Report on a recording."""
    from tbdprof.report import json_report, terminal

    summary = _summarize(file)
    click.echo(json_report.render(summary) if as_json else terminal.render(summary, color=_color(), full=full))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def kernels(file: Path, as_json: bool) -> None:
    """Print each kernel's time, utilization and place under the roofline."""
    _print_part(file, "kernels", as_json=as_json)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def layers(file: Path, as_json: bool) -> None:
    """Print each layer's time, forward and backward."""
    _print_part(file, "layers", as_json=as_json)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def memory(file: Path, as_json: bool) -> None:
    """Print where memory went, and what held it at the peak."""
    _print_part(file, "memory", as_json=as_json)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="SQLite file, or folder for CSV.",
)
@click.option("--format", "form", type=click.Choice(["sqlite", "csv"]), default="sqlite", show_default=True)
def export(file: Path, output: Path, form: str) -> None:
    """Write a recording as plain tables anyone can query."""
    from tbdprof.report.export import write

    write(_load(file), output, form)


@cli.command(name="train-check")
@click.argument("model")
@click.option("--framework", help="One of those the model is written for.")
@click.option("--steps", type=click.IntRange(min=1), help="Training steps; by default as many as the model needs.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads; by default all cores it may use.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
def train_check(
    model: str,
    framework: str | None,
    steps: int | None,
    device: str,
    seed: int,
    threads: int | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Show that a model learns: train it on small generated data, and judge it on held-out data."""
    from tbdprof.cli import commands
    from tbdprof.launch.request import RunRequest
    from tbdprof.loop.plan import Schedule

    chosen = commands.chosen_framework(model, framework)
    request = RunRequest(model, chosen, device, threads=threads, schedule=Schedule(steps=steps), seed=seed)
    return commands.train_check(request, as_json=as_json, quiet=quiet)


@cli.command(name="list")
@click.option("--table", is_flag=True, help="Print the models and data sets as tables II and III of the TBD paper.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(table: bool, as_json: bool) -> None:
    """List the models, and where each can run here."""
    from tbdprof.report import models

    if table:
        click.echo(models.overview_as_json() if as_json else models.overview_as_text())
    else:
        click.echo(models.as_json() if as_json else models.as_table())


@cli.command()
@click.option("--device", default="cuda:0", metavar="cuda:N", show_default=True, help="The GPU to examine in detail.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(device: str, as_json: bool) -> None:
    """Say what works here, what is missing, and how to get it."""
    from tbdprof.doctor.checks import examine
    from tbdprof.report import doctor_report

    examination = examine(device=device)
    click.echo(doctor_report.as_json(examination) if as_json else doctor_report.as_text(examination))


def _load(file: Path) -> "Recording":
    from tbdprof.facts.file.reading import load

    return load(file)


def _summarize(file: Path) -> "Summary":
    from tbdprof.analysis.summary import summarize

    return summarize(_load(file))


def _print_part(file: Path, part: str, *, as_json: bool) -> None:
    from tbdprof.report import json_report, terminal

    summary = _summarize(file)
    text = json_report.render(summary, part) if as_json else terminal.render_part(summary, part, color=_color())
    click.echo(text)


def _color() -> bool:
    return sys.stdout.isatty()
