"""A model is one folder; what is asked of it is checked before anything is built."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy as models

from tbdprof import suite
from tbdprof.cli.main import run
from tbdprof.errors import UsageError
from tbdprof.hooks import FRAMEWORKS
from tbdprof.suite.data import datasets
from tbdprof.suite.workload import Config, Spec


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spec]:
    """Yield a model that is one folder, outside of the package."""
    with models.toy(tmp_path, monkeypatch):
        yield suite.find("toy")


def test_a_model_is_one_folder_and_no_other_change(toy: Spec) -> None:
    assert "toy" in suite.names()
    assert suite.frameworks("toy") == ("torch",)
    workload = suite.build("toy", "torch", suite.configure(toy))
    assert workload.step() == 3


def test_the_parts_of_a_models_framework_module_are_no_frameworks() -> None:
    assert {framework for name in suite.names() for framework in suite.frameworks(name)} <= set(FRAMEWORKS)


def test_what_models_share_is_no_model() -> None:
    folders = {path.parent.name for path in Path(suite.__file__).parent.glob("*/__init__.py")}

    assert set(suite.names()) == folders - suite.SHARED
    assert folders > suite.SHARED
    with pytest.raises(UsageError, match="unknown model 'data'"):
        suite.find("data")


def test_finding_every_model_imports_no_framework_and_no_numpy() -> None:
    code = (
        "import sys\nfrom tbdprof import suite\n"
        "for name in suite.names(): suite.find(name), suite.frameworks(name)\n"
        "print({'torch', 'mxnet', 'tensorflow', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_every_models_data_set_is_a_row_of_table_iii() -> None:
    assert {suite.find(name).dataset for name in suite.names()} <= set(datasets.DATASETS)


def test_every_reader_that_is_named_is_there() -> None:
    readers = [each.reader for each in datasets.DATASETS.values() if each.reader]
    modules = [importlib.import_module(f"tbdprof.suite.data.{name}") for name in readers]
    played = [module for module in modules if hasattr(module, "Pong")]  # which has no batches
    assert [module.__name__ for module in played] == ["tbdprof.suite.data.atari"]
    assert all(callable(module.look) for module in modules)
    assert all(callable(module.batches) for module in modules if module not in played)


def test_every_models_facts_name_its_folder_and_default_batches() -> None:
    for name in suite.names():
        spec = suite.find(name)
        assert spec.name == name
        assert set(spec.default_batch) == {"cpu", "cuda"}
        assert spec.parameters > 0
        assert all(option.default in option.choices for option in spec.options if option.choices)


@pytest.mark.parametrize(("device", "batch"), [("cpu", 3), ("auto", 3), ("cuda", 5), ("cuda:1", 5)])
def test_the_default_batch_is_the_devices(toy: Spec, device: str, batch: int) -> None:
    assert suite.configure(toy, device=device).batch_size == batch


def test_options_are_typed_and_the_rest_are_defaults(toy: Spec) -> None:
    assert suite.configure(toy).options == {"kind": "plain", "width": 8}
    assert suite.configure(toy, options={"width": "12"}).options == {"kind": "plain", "width": 12}
    assert suite.configure(toy, options={"kind": "fancy"}).options == {"kind": "fancy", "width": 8}


def test_what_was_asked_for_is_in_the_configuration(toy: Spec) -> None:
    config = suite.configure(toy, batch_size=7, device="cuda:1", precision="bf16", seed=4)
    assert config == Config(7, "cuda:1", "bf16", 4, {"kind": "plain", "width": 8})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch_size": 0}, "batch size is 0: give 1 or more"),
        ({"batch_size": -4}, "batch size is -4: give 1 or more"),
        ({"seed": -1}, "seed is -1: give 0 or more"),
        ({"precision": "fp8"}, "unknown precision 'fp8': choose fp32, tf32, fp64, bf16"),
        ({"precision": "tf32"}, "tf32 is a format of GPUs: choose another --precision, or --device cuda"),
        ({"options": {"kind": "odd"}}, "--kind is 'odd': choose plain or fancy"),
        ({"options": {"width": "wide"}}, "--width is 'wide': give a whole number of 1 or more"),
        ({"options": {"width": "0"}}, "--width is '0': give a whole number of 1 or more"),
        ({"options": {"image_size": "64"}}, "toy has no option --image-size: choose --kind, --width"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(toy: Spec, asked: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        suite.configure(toy, **asked)
    assert str(caught.value) == message


def test_an_unknown_model_is_answered_with_the_nearest_and_all(toy: Spec) -> None:
    with pytest.raises(UsageError) as near:
        suite.find("resnet")
    with pytest.raises(UsageError) as far:
        suite.frameworks("zzz")
    every = ", ".join(suite.names())
    assert str(near.value) == f"unknown model 'resnet' (did you mean resnet50?): choose one of {every}"
    assert str(far.value) == f"unknown model 'zzz': choose one of {every}"


def test_a_framework_the_model_is_not_written_for_is_refused(toy: Spec) -> None:
    with pytest.raises(UsageError) as checked:
        suite.check_framework(toy, "mxnet")
    with pytest.raises(UsageError) as built:
        suite.build("toy", "torch_layers", suite.configure(toy))
    assert str(checked.value) == "toy is not written for 'mxnet': choose torch"
    assert str(built.value) == "toy is not written for 'torch_layers': choose torch"


@pytest.mark.parametrize(("precision", "needed"), [("fp32", 1040), ("fp64", 2080), ("bf16", 1020)])
def test_the_bytes_needed_are_the_fixed_and_each_samples(toy: Spec, precision: str, needed: int) -> None:
    assert suite.estimate_bytes(toy, suite.configure(toy, batch_size=4, precision=precision)) == needed


def test_a_samples_bytes_follow_the_options(toy: Spec) -> None:
    assert suite.estimate_bytes(toy, suite.configure(toy, options={"width": 1})) == 1009
    assert suite.estimate_bytes(toy, suite.configure(toy, options={"width": "8"})) == 1030


def test_no_model_has_an_option_of_the_commands_own_name() -> None:
    own = {flag.removeprefix("--") for parameter in run.params for flag in parameter.opts}

    for name in suite.names():
        taken = {option.name.replace("_", "-") for option in suite.find(name).options} & own
        assert taken == set(), f"tbdprof run {name} would never see {taken}"
