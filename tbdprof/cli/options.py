"""The types of words and the options that several commands share."""

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import click

PRECISIONS = ("fp32", "tf32", "fp64", "bf16", "fp16")


class ModelCommand(click.Command):
    """A command whose help names the switches that the suite's models have."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the switches by framework."""
        from tbdprof.suite.switches import OF_FRAMEWORK, flag

        with formatter.section("Switches, of the models that have them"):
            for framework, switches in OF_FRAMEWORK.items():
                rows = [(f"{flag(each.name)} {'|'.join(each.choices)}", each.help) for each in switches]
                with formatter.section(framework):
                    formatter.write_dl(rows)


class RunCommand(ModelCommand):
    """A command that passes everything after `--` to a script, and unknown options to the model."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take out the script's command line before anything is parsed."""
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = args[at + 1 :] if at < len(args) else None
        return super().parse_args(ctx, args[:at])


class CompareCommand(click.Command):
    """A command whose help names the figures that a limit can be set on."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what a limit is, and the exit codes."""
        from tbdprof.analysis.comparison.names import HELP

        for paragraph in HELP:
            formatter.write_paragraph()
            formatter.write_text(paragraph)


class NamedPath(click.Path):
    """The path of a file, which has a name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; refuse an empty one, which would mean the current folder."""
        if not value:
            self.fail("it is empty: give the name of a file", param, ctx)
        return super().convert(value, param, ctx)


class NewPath(NamedPath):
    """The path of a file or folder to be made."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; refuse a name that is too long for those that are made from it."""
        from tbdprof.launch.arguments import file_path

        return file_path("-o", super().convert(value, param, ctx))


FILE = NamedPath(path_type=Path)
NEW = NewPath(path_type=Path)
VERBOSE = click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Print the traceback of an error.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
SALVAGE = click.option("--salvage", is_flag=True, help="Leave out the damaged windows of a file, and use the others.")
MOST = 10**9  # steps, samples and repetitions: more is a slip of the hand
MOST_THREADS = 1024

_DEVICE = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
_PRECISION = click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="fp32",
    show_default=True,
    help="Of matrix products and convolutions; a script's own is detected.",
)
_THREADS = click.option(
    "--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads; by default all cores it may use."
)
_SCHEDULE = (
    click.option(
        "--steps",
        type=click.IntRange(1, MOST),
        help="Steps of each clean window; by default 10 on a CPU, 50 on a GPU, and more if they are short.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(0, MOST),
        help="Steps before the first window; by default until settled.",
    ),
    click.option("--max-warmup", type=click.IntRange(1, MOST), help="Most steps of the warm-up, settled or not."),
    click.option(
        "--repeat",
        type=click.IntRange(1, MOST),
        default=1,
        show_default=True,
        help="How many times to record all windows.",
    ),
)
_SEED = click.option("--seed", type=int, default=0, show_default=True, help="Of the data and the initial weights.")
_DATA = (
    click.option(
        "--data",
        default="synthetic",
        metavar="synthetic|DIR",
        show_default=True,
        help="Folder of the model's data set; synthetic: one batch made from the seed.",
    ),
    _SEED,
)
_PRINTED = (
    click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else on stdout."),
    click.option("-q", "--quiet", is_flag=True, help="Show no progress."),
    VERBOSE,
)
_FRAMEWORK = click.option("--framework", help="torch, mxnet or tensorflow.")
_BATCH_SIZE = click.option(
    "--batch-size", type=int, help="Samples a step (transformer: 32 tokens each); by default the model's."
)

_OF_RUN = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [MODEL OPTIONS] | -- COMMAND"),
    _FRAMEWORK,
    _DEVICE,
    _BATCH_SIZE,
    _PRECISION,
    click.option("--samples-per-step", type=click.IntRange(1, MOST), help="Of a script; by default detected."),
    click.option("--unit", help="What --samples-per-step counts, or what a sample is called: tokens, images."),
    _THREADS,
    *_SCHEDULE,
    *_DATA,
    click.option(
        "--power-period",
        type=click.IntRange(10, 3_600_000),
        default=100,
        show_default=True,
        metavar="MS",
        help="Milliseconds between two samples of a GPU's power and clocks.",
    ),
    click.option("--exact", is_flag=True, help="On a GPU, count one more step exactly, with Nsight Compute."),
    click.option("-o", "--output", type=NEW, help="File to record into."),
    click.option("--force", is_flag=True, help="Overwrite that file."),
    click.option("--require-recording", is_flag=True, help="Exit with 1 if nothing was recorded of a script."),
    click.option("--html", is_flag=True, help="Write a page for a browser, too, beside the recording."),
    click.option("--live", is_flag=True, help="Show the run while it goes on, below its own output."),
    *_PRINTED,
)

_OF_SWEEP = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL… | -- COMMAND]"),
    click.option("--framework", help="torch, mxnet or tensorflow, or several, separated by commas."),
    click.option("--batch-size", help="Sizes, separated by commas, or auto: find the largest that fits."),
    click.option("--max-batch-size", type=click.IntRange(1, MOST), help="The largest that auto tries."),
    click.option(
        "--set",
        "axes",
        multiple=True,
        metavar="NAME=V1,V2",
        help="Another setting: precision, threads, seed, device, a model's option, or {NAME} in the command.",
    ),
    _DEVICE,
    _PRECISION,
    _THREADS,
    *_SCHEDULE,
    *_DATA,
    click.option("-o", "--output", type=NEW, required=True, metavar="DIR", help="The folder of the sweep."),
    click.option("--on", metavar="ray[:ADDRESS]", help="Run the points on a Ray cluster: the one here, or HOST:PORT."),
    click.option("--gpus", type=click.IntRange(0, MOST), help="GPUs that each point asks the cluster for."),
    *_PRINTED,
)

_OF_ADVISE = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="MODEL [MODEL OPTIONS]"),
    _FRAMEWORK,
    _DEVICE,
    _BATCH_SIZE,
    _PRECISION,
    _THREADS,
    *_SCHEDULE,
    *_DATA,
    click.option("--all", "tries_all", is_flag=True, help="Try every switch that the model has."),
    click.option("-o", "--output", type=NEW, metavar="DIR", help="The folder of the runs: advice-MODEL-FRAMEWORK."),
    *_PRINTED,
)

_OF_TRAIN_CHECK = (
    click.argument("model"),
    click.option("--framework", help="One of those the model is written for."),
    click.option("--steps", type=click.IntRange(1, MOST), help="Training steps; by default as many as it needs."),
    _DEVICE,
    _SEED,
    _THREADS,
    *_PRINTED,
)

_OF_PART = (click.argument("file", type=FILE), SALVAGE, AS_JSON, VERBOSE)


def of_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `tbdprof run`."""
    return _with(_OF_RUN, function)


def of_sweep(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `tbdprof sweep`."""
    return _with(_OF_SWEEP, function)


def of_advise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `tbdprof advise`."""
    return _with(_OF_ADVISE, function)


def of_part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of those that print a part of a report: `tbdprof kernels`, `layers`, `memory`."""
    return _with(_OF_PART, function)


def of_train_check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `tbdprof train-check`."""
    return _with(_OF_TRAIN_CHECK, function)


def _with(options: Sequence[Callable[..., Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    return reduce(lambda inner, option: option(inner), reversed(options), function)
