"""What `tbdprof doctor` prints of an examination."""

import json
from dataclasses import replace
from pathlib import Path

from tbdprof.collect.gpu.nvidia import Counters, Gpu, Nvidia
from tbdprof.doctor.checks import Examination, Framework, Host, Library
from tbdprof.doctor.methods import EXACT, Level, Subject, judged
from tbdprof.report import doctor_report

HOST = Host(python="3.11.7", cpu=None, cores=1.5, machine_cores=2, memory_bytes=8 * 1024**3)
BARE = Examination(
    host=HOST,
    frameworks=(
        Framework("torch", "2.13.0", 0),
        Framework("mxnet", None, None, "not installed", "pip install 'tbdprof[mxnet]'"),
        Framework("tensorflow", "2.21.0", None, "its import was killed by SIGILL"),
    ),
    libraries=(Library("libgomp.so.1", True), Library("libquadmath.so.0", False, "apt-get it")),
    nvidia=Nvidia(reason="the NVIDIA driver does not answer: not found"),
    counters=Counters(None, "no NVIDIA driver is loaded"),
    cupti=None,
    levels=judged((Level("device", False, "there is no driver", "install it"), Level("counted", False, "no ncu"))),
)
FULL = Examination(
    host=HOST,
    frameworks=(Framework("torch", "2.13.0", 1),),
    libraries=(),
    nvidia=Nvidia("580.95.05", "13.1", (Gpu(0, "Example GPU", "9.0", 141 * 1024**3),)),
    counters=Counters(False, "the driver keeps them for root"),
    cupti=Path("/cuda/libcupti.so.13"),
    levels=judged((Level("device", True, "power: yes"), Level("sampled", False, "locked", "unlock them"))),
)


def test_what_is_missing_comes_with_reason_and_command() -> None:
    rows = {what: (whether, why) for what, whether, why in doctor_report.rows(BARE)}

    assert rows["CPU"] == ("unknown", "1.5 of 2 cores, 8.00 GiB memory")
    assert rows["torch"] == ("2.13.0", "GPUs it can use: 0")
    assert rows["mxnet"] == ("no", "not installed; type: pip install 'tbdprof[mxnet]'")
    assert rows["tensorflow"] == ("2.21.0 fails", "its import was killed by SIGILL")
    assert rows["libquadmath.so.0"] == ("no", "MXNet needs it; type: apt-get it")
    assert rows["NVIDIA driver"] == ("no", "the NVIDIA driver does not answer: not found")
    assert rows["GPU performance counters"] == ("unknown", "no NVIDIA driver is loaded")


def test_a_device_is_shown_with_what_it_can_do() -> None:
    rows = {what: (whether, why) for what, whether, why in doctor_report.rows(FULL)}

    assert rows["NVIDIA driver"] == ("580.95.05", "CUDA up to 13.1")
    assert rows["GPU 0"] == ("Example GPU", "compute capability 9.0, 141.00 GiB memory")
    assert rows["GPU performance counters"] == ("no", "the driver keeps them for root")
    assert rows["CUPTI"] == ("yes", "/cuda/libcupti.so.13")


def test_the_last_line_is_the_highest_level_and_what_would_raise_it() -> None:
    *_, device, counted, last = doctor_report.rows(BARE)
    assert device == ("level: device", "no", "there is no driver")
    assert counted == ("level: counted", "no", "no ncu")
    assert last == ("highest level", "none", "to raise it: install it")

    assert doctor_report.rows(FULL)[-1] == ("highest level", "device", "to raise it: unlock them")


def test_the_highest_of_all_is_to_be_asked_for() -> None:
    best = replace(FULL, levels=judged((Level("device", True, "yes"), Level("counted", True, "ncu"))))
    assert doctor_report.rows(best)[-1] == ("highest level", "counted", f"ask for it: {EXACT}")


def test_of_several_devices_each_is_reported_and_which_one_the_levels_are_of() -> None:
    gpus = (Gpu(0, "Example GPU", "9.0", 141 * 1024**3, False), Gpu(1, "Other GPU", "8.0", 80 * 1024**3, True))
    looked_at = Subject("cuda:0", "Other GPU", 1, 2)  # CUDA numbers the fastest first, or as CUDA_VISIBLE_DEVICES says
    several = replace(FULL, nvidia=replace(FULL.nvidia, gpus=gpus), looked_at=looked_at)
    rows = {what: (whether, why) for what, whether, why in doctor_report.rows(several)}

    assert rows["GPU 0"] == ("Example GPU", "compute capability 9.0, 141.00 GiB memory")
    assert rows["GPU 1"] == (
        "Other GPU",
        "compute capability 8.0, 80.00 GiB memory, divided into instances (MIG)",
    )
    assert rows["levels of"] == (
        "cuda:0",
        "Other GPU; GPU 1 above; cuda:0 to cuda:1: tbdprof doctor --device cuda:N",
    )
    assert [what for what, *_ in doctor_report.rows(several)].count("GPU performance counters") == 1


def test_of_one_device_the_levels_say_no_more_than_its_name() -> None:
    def levels_of(looked_at: Subject) -> list[tuple[str, str, str]]:
        return [row for row in doctor_report.rows(replace(FULL, looked_at=looked_at)) if row[0] == "levels of"]

    assert levels_of(Subject("cuda:0", "Example GPU", 0, 1)) == [("levels of", "cuda:0", "Example GPU; GPU 0 above")]
    assert levels_of(Subject("cuda:0", "Example GPU", None, 1)) == [("levels of", "cuda:0", "Example GPU")]
    assert levels_of(Subject("cuda:0")) == []


def test_the_text_fits_its_width_and_keeps_every_word() -> None:
    text = doctor_report.as_text(BARE, width=60)

    assert max(map(len, text.splitlines())) <= 60
    assert "'tbdprof[mxnet]'" in text


def test_the_json_has_null_for_what_is_unknown() -> None:
    found = json.loads(doctor_report.as_json(BARE))

    assert found["host"]["cpu"] is None
    assert found["frameworks"][1]["command"] == "pip install 'tbdprof[mxnet]'"
    assert found["counters"] == {"readable": None, "reason": "no NVIDIA driver is loaded"}
    assert found["levels"]["highest"] is None
    full = json.loads(doctor_report.as_json(FULL))
    assert full["cupti"] == "/cuda/libcupti.so.13"
    assert full["levels"]["found"][1] == {
        "name": "sampled",
        "works": False,
        "answer": "locked",
        "remedy": "unlock them",
    }
    assert (full["levels"]["highest"], full["levels"]["raised_by"]) == ("device", "unlock them")
