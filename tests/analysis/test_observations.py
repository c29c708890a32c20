"""The paper's observations on made-up recordings: each can be borne out, refuted, and left open."""

from dataclasses import replace

import pytest

from tbdprof.analysis.observations.cases import Case, of_sweep
from tbdprof.analysis.observations.judging import SAYS, observe
from tbdprof.report import observations as reports
from tbdprof.results.kernels import Group, LowUtilization
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.observations import Answer, Observation
from tbdprof.results.sweep import End, PointFigures, Sweep, SweepPoint
from tbdprof.results.time import Rate

YES, NO, UNCLEAR = Answer.YES, Answer.NO, Answer.UNCLEAR
FIGURES = PointFigures(
    rate=None,
    unit="samples",
    step_seconds=None,
    peak_bytes=None,
    category_bytes=None,
    busy=None,
    fp32=None,
    drifted=None,
    complete=True,
    model="",
    framework="torch 2",
    device="One",
    on_gpu=True,
    precision="fp32",
    threads=None,
    low_utilization=None,
    cpu=None,
    exposed=None,
)


def rate(value: float, noise: float = 0.01) -> Rate:
    return Rate(value, (value * (1 - 2 * noise), value * (1 + 2 * noise)))


def case(program: str, batch: int, framework: str = "torch", *, full: bool = False, **figures: object) -> Case:
    found = None if full else replace(FIGURES, **figures)  # type: ignore[arg-type]
    return Case(program, framework, framework, batch, found)


def memory(feature_maps: int, weights: int = 100) -> dict[str, int]:
    return {**dict.fromkeys(CATEGORIES, 1), "feature_maps": feature_maps, "weights": weights}


def kernel(share: float) -> LowUtilization:
    group = Group("bn", "", "", "", (), 1.0, 1.0, share, 0.1, 1.0, None, None, True, None, None, None, None)
    return LowUtilization(0.5, 1.0, (group,), ())


def ladder(program: str, rates: list[float], noise: float = 0.01, *, full: bool = True) -> list[Case]:
    """Return cases whose batches double, and one that ran out of memory."""
    found = [case(program, 2**place, rate=rate(value, noise)) for place, value in enumerate(rates)]
    return [*found, case(program, 2 ** len(rates), full=True)] if full else found


GROWING, FLAT = [10.0, 20.0, 40.0, 80.0], [10.0, 100.0, 101.0, 100.0]

CASES: list[tuple[int, Answer, list[Case]]] = [
    (1, YES, ladder("resnet50", GROWING)),
    (1, NO, ladder("resnet50", [10.0, 20.0, 5.0])),
    (1, NO, [*ladder("resnet50", GROWING), *ladder("wgan", [10.0, 5.0])]),
    (1, UNCLEAR, ladder("resnet50", [10.0, 10.1])),
    (1, UNCLEAR, [case("resnet50", 1, rate=rate(1.0))]),
    (2, YES, ladder("seq2seq", GROWING)),
    (2, NO, ladder("deep_speech2", FLAT)),
    (2, UNCLEAR, ladder("seq2seq", GROWING, full=False)),
    (2, UNCLEAR, ladder("resnet50", GROWING)),
    (2, UNCLEAR, ladder("seq2seq", GROWING, noise=0.5)),
    (
        3,
        YES,
        [
            *(case("resnet50", 1, name, rate=rate(value)) for name, value in (("torch", 10.0), ("mxnet", 20.0))),
            *(case("wgan", 1, name, rate=rate(value)) for name, value in (("torch", 20.0), ("mxnet", 10.0))),
        ],
    ),
    (
        3,
        NO,
        [
            case(program, 1, name, rate=rate(value))
            for program in ("resnet50", "wgan")
            for name, value in (("torch", 10.0), ("mxnet", 20.0))
        ],
    ),
    (3, UNCLEAR, [case("resnet50", 1, name, rate=rate(10.0)) for name in ("torch", "mxnet")]),
    (4, YES, [case("resnet50", 1, busy=0.5), case("resnet50", 8, busy=0.9)]),
    (4, YES, [case("resnet50", 1, busy=0.97), case("resnet50", 8, busy=0.98)]),
    (4, NO, [case("resnet50", 1, busy=0.9), case("resnet50", 8, busy=0.5)]),
    (4, UNCLEAR, [case("resnet50", 1, busy=0.5), case("resnet50", 8, busy=0.51)]),
    (5, YES, [case("seq2seq", 8, busy=0.5), case("resnet50", 8, busy=0.9)]),
    (5, NO, [case("seq2seq", 8, busy=0.95), case("resnet50", 8, busy=0.9)]),
    (5, UNCLEAR, [case("deep_speech2", 8, busy=0.5), case("resnet50", 8, busy=0.9)]),
    (6, YES, [case("resnet50", 1, fp32=0.1), case("resnet50", 8, fp32=0.4)]),
    (6, NO, [case("resnet50", 1, fp32=0.4), case("resnet50", 8, fp32=0.1)]),
    (7, YES, [case("deep_speech2", 8, fp32=0.1), case("resnet50", 8, fp32=0.4)]),
    (7, NO, [case("deep_speech2", 8, fp32=0.5), case("resnet50", 8, fp32=0.4)]),
    (7, UNCLEAR, [case("resnet50", 8, fp32=0.4)]),
    (8, YES, [case("resnet50", 8, low_utilization=kernel(0.08))]),
    (8, NO, [case("resnet50", 8, low_utilization=kernel(0.001))]),
    (8, UNCLEAR, [case("resnet50", 8)]),
    (9, YES, [case("resnet50", 8, cpu=0.1)]),
    (9, NO, [case("resnet50", 8, cpu=0.9)]),
    (9, UNCLEAR, [case("resnet50", 8, cpu=0.1, on_gpu=False)]),
    (
        10,
        YES,
        [
            case("resnet50", 8, device="Old", rate=rate(10.0), busy=0.9, fp32=0.8),
            case("resnet50", 8, device="New", rate=rate(20.0), busy=0.8, fp32=0.5),
        ],
    ),
    (
        10,
        NO,
        [
            case("resnet50", 8, device="Old", rate=rate(10.0), busy=0.9, fp32=0.5),
            case("resnet50", 8, device="New", rate=rate(20.0), busy=0.8, fp32=0.8),
        ],
    ),
    (10, UNCLEAR, [case("resnet50", 8, rate=rate(10.0), busy=0.9, fp32=0.5)]),
    (11, YES, [case("resnet50", 8, category_bytes=memory(1000))]),
    (11, NO, [case("resnet50", 8, category_bytes=memory(50))]),
    (11, UNCLEAR, [case("resnet50", 8)]),
    (
        12,
        YES,
        [case("resnet50", 2**n, rate=rate(v), category_bytes=memory(100 * 2**n)) for n, v in enumerate(FLAT)],
    ),
    (
        12,
        NO,
        [case("resnet50", 2**n, rate=rate(v), category_bytes=memory(100 * 2**n)) for n, v in enumerate(GROWING)],
    ),
    (
        12,
        NO,
        [case("resnet50", 2**n, rate=rate(v), category_bytes=memory(100 * 4**n)) for n, v in enumerate(FLAT)],
    ),
    (12, UNCLEAR, [case("resnet50", 1, rate=rate(1.0), category_bytes=memory(100))]),
    (13, UNCLEAR, [case("resnet50", 1, exposed=0.5)]),
]


def found_of(cases: list[Case], number: int) -> Observation:
    return observe(cases)[number - 1]


@pytest.mark.parametrize(("number", "answer", "cases"), CASES)
def test_an_observation_is_answered(number: int, answer: Answer, cases: list[Case]) -> None:
    found = found_of(cases, number)

    assert (found.number, found.answer) == (number, answer)
    assert (found.reason is not None) == (answer is UNCLEAR)
    assert found.figures or answer is UNCLEAR


def test_every_observation_can_be_borne_out_and_refuted_but_that_of_the_network() -> None:
    answers = {number: {answer for each, answer, _ in CASES if each == number} for number in SAYS}

    assert all({YES, NO} <= answers[number] for number in range(1, 13))
    assert answers[13] == {UNCLEAR}


def test_without_recordings_nothing_can_be_told() -> None:
    assert {each.answer for each in observe([])} == {UNCLEAR}


def test_a_sweep_gives_a_case_for_each_point_that_is_a_result() -> None:
    ends = {1: End.FINISHED, 2: End.FAILED, 4: End.OUT_OF_MEMORY}
    points = [
        SweepPoint(
            str(size),
            {"model": "resnet50", "framework": "torch", "batch_size": size, "depth": "18"},
            end,
            None,
            None,
            None,
            FIGURES if end is End.FINISHED else None,
        )
        for size, end in ends.items()
    ]
    swept = ("model", "framework", "batch_size", "depth")

    cases = of_sweep(Sweep("t", swept, "batch_size", tuple(points), (), 0))

    assert [(each.label, each.batch, each.figures is None) for each in cases] == [
        ("resnet50 torch depth 18", 1, False),
        ("resnet50 torch depth 18", 4, True),
    ]
    assert of_sweep(Sweep("t", ("lr",), "", tuple(points), (), 0)) == []


def test_the_report_has_each_answer_with_its_figures() -> None:
    text = reports.render(observe(ladder("resnet50", GROWING)), width=200)

    assert " 1  throughput grows with the mini-batch: yes\n      resnet50 torch on One: 8× from batch 1 to 8" in text
    assert "13  network bandwidth limits how training scales over machines: cannot tell" in text
