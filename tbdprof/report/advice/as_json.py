"""The report of what was tried as one JSON object."""

from dataclasses import asdict
from typing import Any

from tbdprof.report.advice.memory import trial_memory
from tbdprof.report.compare import change_json
from tbdprof.report.json_text import json_text
from tbdprof.results.advice import Advised, Trial

SCHEMA = 1


def render(advised: Advised) -> str:
    """Return the report as one JSON object; docs/advise.md describes it."""
    comparison = advised.comparison
    sides = () if comparison is None else comparison.sides
    return json_text(
        {
            "schema": SCHEMA,
            "plain": asdict(advised.plain),
            "again": None if advised.again is None else _trial_json(advised.again),
            "advice": [
                {"text": each.text, "result": each.result, "trials": [trial.name for trial in each.trials]}
                for each in advised.advice
            ],
            "trials": [_trial_json(trial) for trial in advised.trials],
            "runs": [side.names[0] for side in sides],
            "differences": {} if comparison is None else comparison.differences,
            "remarks": {
                side.names[0]: [text.removeprefix(side.label).lstrip(": ") for text in side.remarks]
                for side in sides
                if side.remarks
            },
        }
    )


def _trial_json(trial: Trial) -> dict[str, Any]:
    pair, memory = trial.pair, trial_memory(trial)
    return {
        "name": trial.name,
        "settings": trial.choice.settings,
        "advice": trial.choice.advice,
        "result": trial.result,
        "reason": trial.reason or None,
        "throughput": None if pair is None else change_json(pair.throughput),
        "peak_memory": None if memory is None else change_json(memory),
        "kernels": None if pair is None else [change_json(each) for each in pair.kernels],
        "losses": trial.losses.values,
        "no_losses": trial.losses.reason,
        "seconds": trial.seconds,
    }
