"""The switches of the suite: which model has which, what is refused, and that each does what its name says."""

import pytest

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.launch.request import RunRequest
from tbdprof.suite import switches
from tbdprof.suite.resnet50 import SPEC

SMALL = {"image_size": 64}


@pytest.mark.parametrize("model", suite.names())
def test_a_model_has_switches_of_the_frameworks_it_is_written_for(model: str) -> None:
    spec = suite.find(model)

    assert {*spec.switches} <= {*suite.frameworks(model)}
    for framework, names in spec.switches.items():
        assert [each.name for each in switches.of_model(spec, framework)] == [*names]
    assert not {option.name for option in spec.options} & {*switches.ALL}


def test_a_switch_is_kept_with_the_models_options_unless_it_is_at_its_default() -> None:
    request = RunRequest("resnet50", "mxnet", options={**SMALL, "hybridize": "static"})
    plain = RunRequest("resnet50", "mxnet", options={**SMALL, "hybridize": "dynamic"})

    assert request.config().options == {"variant": "v1.5", "image_size": 64, "hybridize": "static"}
    assert plain.config().options == {"variant": "v1.5", "image_size": 64}
    assert RunRequest.from_json(request.to_json()).config() == request.config()


@pytest.mark.parametrize(
    ("framework", "options", "said"),
    [
        (
            "mxnet",
            {"compile": "on"},
            "no switch --compile: it has --hybridize; it has --compile with --framework torch",
        ),
        ("torch", {"jit": "on"}, "it has --compile, --channels-last, --fused-optimizer, --checkpointing; it has --jit"),
        ("mxnet", {"hybridize": "off"}, "--hybridize is 'off': choose none or dynamic or static"),
        ("tensorflow", {"eager": "on", "jit": "on"}, "--eager and --jit exclude each other"),
        ("torch", {"compiled": "on"}, "has no option --compiled: choose --variant, --image-size, --compile"),
    ],
)
def test_what_a_model_lacks_is_one_line_with_what_it_has(framework: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RunRequest("resnet50", framework, options=options).config()


def test_a_model_without_switches_says_so() -> None:
    with pytest.raises(UsageError, match="a3c in torch has no switch --compile: it has none"):
        RunRequest("a3c", "torch", options={"compile": "on"}).config()


def test_a_run_that_computes_maps_again_is_not_refused_for_the_memory_of_all_maps() -> None:
    kept, again = (
        suite.configure(SPEC, framework="torch", batch_size=64, options={"checkpointing": each})
        for each in ("off", "on")
    )

    assert suite.estimate_bytes(SPEC, again) == SPEC.fixed_bytes < suite.estimate_bytes(SPEC, kept)
