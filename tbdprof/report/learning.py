"""What a model learned: its figures on held-out data during training, beside those of guessing."""

from rich.console import Group
from rich.text import Text

from tbdprof.report.json_text import json_text
from tbdprof.report.terminal_parts.tables import Column, plain, printed
from tbdprof.suite.checks.learning import Checked, Learned

SCHEMA = 1


def as_text(checked: Checked) -> str:
    """Return the curve as a table, and whether it passed, by which rule."""
    learned = checked.learned
    where = (
        f"{checked.framework} {checked.framework_version}".strip(),
        checked.device,
        f"{checked.threads} thread{'s' * (checked.threads > 1)}",
        f"seed {checked.seed}",
    )
    head = Text.assemble((checked.model, "bold"), *(f" · {fact}" for fact in where))
    verdict = f"{'passed' if learned.passed else 'not passed'}: {learned.rule}"
    return printed(Group(head, Text(f"trained on {learned.data}\n"), _curve(learned), Text(f"\n{verdict}")))


def as_json(checked: Checked) -> str:
    """Return the check as one JSON object; a figure that is not finite, or has no meaning, is null."""
    learned = checked.learned
    names = ("model", "framework", "framework_version", "device", "threads", "seed")
    curve = [
        {
            "step": point.step,
            "seconds": point.seconds,
            "loss": point.loss,
            "quality": point.quality,
        }
        for point in learned.curve
    ]
    document = {
        "schema": SCHEMA,
        **{name: getattr(checked, name) for name in names},
        "data": learned.data,
        "measure": learned.measure,
        "chance": learned.chance,
        "frequency_loss": learned.frequency_loss,
        "curve": curve,
        "passed": learned.passed,
        "rule": learned.rule,
    }
    return json_text(document)


def _curve(learned: Learned) -> Group:
    columns = [Column(name) for name in ("step", "training", "held-out loss", learned.measure)]
    rows = [
        (f"{point.step:,}", f"{point.seconds:.1f} s", _digits(point.loss), _digits(point.quality))
        for point in learned.curve
    ]
    frequencies = "" if learned.frequency_loss is None else _digits(learned.frequency_loss)
    return Group(plain(columns, [*rows, ("guessing", "", frequencies, _digits(learned.chance))]))


def _digits(value: float) -> str:
    return f"{value:.4g}"
