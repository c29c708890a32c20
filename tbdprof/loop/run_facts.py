"""Record the framework's facts about a run: what it runs on, and what the loop trains."""

from typing import TYPE_CHECKING

from tbdprof.facts.records import Run
from tbdprof.hooks import Facts, FrameworkHook

if TYPE_CHECKING:
    from tbdprof.facts.recorder import Recorder


def record_facts(hook: FrameworkHook, recorder: "Recorder") -> None:
    """Record the framework's facts about the run so far; those of models that are gone by now stay as they were."""
    facts = hook.facts()
    is_whole = len(facts.parameters) >= len(recorder.recording.run.parameters)
    recorder.update(
        framework_version=facts.framework_version,
        threads=facts.threads,
        precision_flags=dict(facts.precision_flags),
        runs_ahead=facts.runs_ahead,
        **(_of_models(facts) if is_whole else {}),
        **_batch_size(facts, recorder.recording.run),
        independent_total=hook.independent_total,
        watched_since=hook.watched_since,
    )


def _of_models(facts: Facts) -> dict[str, object]:
    return {
        "device": facts.device,
        "devices": list(facts.devices),
        "device_name": facts.device_name,
        "parameters": tuple(facts.parameters),
        "optimizers": tuple(facts.optimizers),
        "whole_parameters": facts.whole_parameters,
    }


def _batch_size(facts: Facts, run: Run) -> dict[str, object]:
    """Return the batch size that the framework was seen to use, unless the user said one."""
    if facts.batch_size is None or (run.batch_size is not None and not run.batch_size_from):
        return {}
    return {"batch_size": facts.batch_size, "batch_size_from": facts.batch_size_from}
