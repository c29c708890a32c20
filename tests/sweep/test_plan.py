"""The plan of a sweep: its points, their names, and its file."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tbdprof.errors import UsageError
from tbdprof.launch.order import Said
from tbdprof.launch.request import RunRequest
from tbdprof.loop.plan import Schedule
from tbdprof.sweep.plan import Plan, Script, Value, as_json, axis, check, from_json, merged, value_of

MODEL = RunRequest("resnet50", "torch", options={"image_size": 64}, schedule=Schedule(steps=5))
SCRIPT = Script(("python", "train.py", "--batch", "{batch}", "{}"), "torch", Schedule(warmup=2), Said(unit="images"))
AXES: Mapping[str, tuple[Value, ...]] = {"model": ("resnet50",), "framework": ("torch", "mxnet"), "batch_size": (1, 2)}


def test_points_are_all_combinations_the_last_axis_fastest() -> None:
    plan = Plan(MODEL, AXES)

    names = [plan.point(settings).name for settings in plan.combinations()]

    assert names == [f"resnet50-{framework}-batch_size={size}" for framework in ("torch", "mxnet") for size in (1, 2)]


def test_a_point_of_a_model_is_a_run_with_its_settings() -> None:
    plan = Plan(MODEL, {**AXES, "depth": ("18",)})

    requests = [plan.program_at(settings) for settings in plan.combinations()]

    assert requests[-1] == replace(MODEL, framework="mxnet", batch_size=2, options={"image_size": 64, "depth": "18"})


def test_a_point_of_a_script_has_its_values_in_the_command() -> None:
    program = Plan(SCRIPT, {"batch": ("8",)}).program_at({"batch": "8"})

    assert isinstance(program, Script)
    assert program.command == ("python", "train.py", "--batch", "8", "{}")


def test_names_of_points_are_names_of_files_and_differ() -> None:
    values = ["a/b", "a_b", "a b", "../up", "", "é", "x" * 500, "x" * 501, "1e-3"]
    plan = Plan(SCRIPT, {"batch": tuple(values)})

    names = [plan.point(settings).name for settings in plan.combinations()]

    assert len(set(names)) == len(values)
    assert all("/" not in name and name.isascii() and len(name) < 200 for name in names)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(MODEL, AXES),
        Plan(MODEL, {"model": ("wgan",), "framework": ("torch",)}, "batch_size", 64),
        Plan(SCRIPT, {"batch": ("8", "16"), "name": ("<é>",)}),
        Plan(MODEL, {}, chosen=({}, {"compile": "on"}), loss_steps=10),
    ],
)
def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    read = from_json(as_json(plan).encode())

    assert read == plan


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1, "axes": {}}', '{"format": 1, "axes": {}, "model": {"no": 1}}']
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        from_json(text.encode())


def test_plans_of_one_program_join_their_values() -> None:
    more = Plan(MODEL, {**AXES, "batch_size": (2, 4)})

    joined = merged(Plan(MODEL, AXES), more)

    assert joined is not None
    assert joined.axes["batch_size"] == (1, 2, 4)
    assert merged(Plan(MODEL, AXES), Plan(replace(MODEL, seed=1), AXES)) is None
    assert merged(Plan(MODEL, AXES), Plan(MODEL, {**AXES, "depth": ("18",)})) is None
    assert merged(Plan(MODEL, AXES), Plan(MODEL, AXES, "threads")) is None


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(MODEL, {"framework": ("torch", "jax")}), "not written for 'jax'"),
        (Plan(MODEL, {"batch_size": (1, 0)}), "batch size is 0: give 1 or more"),
        (Plan(MODEL, {"precision": ("fp32", "fp31")}), "unknown precision 'fp31'"),
        (Plan(MODEL, {"colour": ("red",)}), "colour"),
        (Plan(SCRIPT, {"width": ("1",)}), "--set width is nowhere in the command: put {width} where its value goes"),
        (Plan(SCRIPT, {}, "size"), "put {size} where"),
    ],
)
def test_a_plan_with_a_point_that_cannot_be_run_is_refused_before_it_begins(plan: Plan, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        check(plan)

    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["precision", "=1", "precision=", "precision=,", ""])
def test_a_setting_without_a_name_or_values_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give a name and its values"):
        axis(text)


def test_whole_numbers_are_typed() -> None:
    assert [value_of("batch_size", "8"), value_of("precision", "bf16")] == [8, "bf16"]
    with pytest.raises(UsageError, match="batch_size is 'many': give whole numbers"):
        value_of("batch_size", "many")


@pytest.mark.parametrize(
    ("names", "expected"), [(("width", "batch-size"), "batch-size"), (("BS",), "BS"), (("lr",), None)]
)
def test_the_batch_is_known_by_its_name(names: tuple[str, ...], expected: str | None) -> None:
    assert Plan(SCRIPT, dict.fromkeys(names, ("1",))).batch == expected
