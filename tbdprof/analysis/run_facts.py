"""The facts of a run that the reports show, and why some of them are not known."""

from tbdprof.analysis.time.given import Given
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Run
from tbdprof.results.found import Found
from tbdprof.results.reasons import NO_RANK, NOT_JUDGED, NOT_REPORTED, ONE_WINDOW
from tbdprof.results.time import Throughput


def run_facts(
    recording: Recording, steps: Found[Given], throughput: Throughput | None, precision: str | None
) -> Found[Run]:
    """Return the run; `precision` is that of its matmuls and convolutions, and the throughput says if it drifted."""
    run = recording.run
    missing = {"seed": NOT_REPORTED} if run.seed is None else {}
    if run.rank is None:
        missing["rank"] = missing["world_size"] = NO_RANK
    if run.batch_size is None and (throughput is None or run.sample_unit not in throughput.per_step):
        missing["batch_size"] = steps.missing.get(run.sample_unit, NOT_REPORTED)
    if run.precision is None and precision is None:
        missing["precision"] = NOT_REPORTED
    if not any(item.trainable for item in run.parameters):
        missing["parameters"] = missing["whole_parameters"] = "no trained parameter was seen"
    if run.settled is None:
        missing["settled"] = NOT_JUDGED if run.settled_by else "the warm-up did not end"
    if throughput is None or throughput.drifted is None:
        missing["drifted"] = ONE_WINDOW
    return Found(run, missing)
