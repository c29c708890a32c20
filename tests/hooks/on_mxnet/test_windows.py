"""Windows that cannot begin or end as they should leave MXNet as it was; each in a fork of its own."""

import importlib.util
import os
import textwrap
from pathlib import Path

import forking
import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

HERE = Path(__file__).parent
WATCHED = """
    import sys, tempfile
    from pathlib import Path
    from tbdprof.errors import UnavailableError, UsageError
    from tbdprof.hooks import Setting
    from tbdprof.hooks.on_mxnet import hook
    from tbdprof.facts.records import Strings
    watched = hook()
    watched.set_environment(Setting())
    import mxnet as mx
    sys.path.insert(0, {here!r})
    import kernel_scenarios
    import scenarios
    untouched = kernel_scenarios.identities()
    watched.prepare(Setting(device="cpu"))
    model = scenarios.net(active=True)
    trainer, step = scenarios.training(model)
    watched.watch([model], [trainer])
    step()
    from tbdprof.hooks.on_mxnet.memory import jump_slots
    from tbdprof.hooks.on_mxnet.session import engine, layout
    from tbdprof.hooks.on_mxnet.watch import owners

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    def interrupted(owner, name, call):
        original = getattr(owner, name)
        setattr(owner, name, interrupt)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            setattr(owner, name, original)

    def state():
        joined, find = watched._joined, jump_slots.find
        jump_slots.find = lambda library, symbols: ()  # the allocator's are taken as long as the hook is open
        try:
            found = kernel_scenarios.identities()
        finally:
            jump_slots.find = find
        files = [each.name for each in Path(tempfile.gettempdir()).glob("tbdprof-*")]
        return [found, joined.watch.steps.phases, joined.allocator.is_open, layout.profiler_state(), files]

    def window(kind):
        watched.start(kind)
        step()
        watched.mark_step()
        watched.stop()
        drained = watched.drain(Strings())
        assert len(drained.marks) == 1 and len(drained.tables["span"]), drained
        return drained

    mx.nd.waitall()
    before = state()
"""


def run(program: str, folder: Path) -> str:
    """Run a program after a first step; return what it printed."""
    source = textwrap.dedent(WATCHED.format(here=str(HERE))) + textwrap.dedent(program)
    file = folder / "program.py"
    file.write_text(f"import tempfile\ntempfile.tempdir = {str(folder)!r}\n{source}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    settings = {"PYTHONPATH": str(HERE.parents[2]), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = forking.run("mxnet", [str(file)], env={**kept, **settings}, prepared=True, timeout_s=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_windows_interrupted_as_they_begin_leave_nothing_behind(tmp_path: Path) -> None:
    program = """
        places = {
            "memory": [(owners, "visible"), (owners, "everything")],
            "kernels": [(layout, "prove_recorded"), (mx.profiler, "set_state"), (mx.profiler, "resume")],
        }
        for kind, each in places.items():
            for owner, name in each:
                print(kind, name, interrupted(owner, name, lambda: watched.start(kind)), state() == before)
                print("span" in window(kind).tables)
        watched.close()
        print(kernel_scenarios.identities() == untouched)
    """
    lines = run(program, tmp_path).splitlines()
    assert lines[:-1:2] == [
        "memory visible True True",
        "memory everything True True",
        "kernels prove_recorded True True",
        "kernels set_state True True",
        "kernels resume True True",
    ]
    assert set(lines[1::2]) == {"True"}
    assert lines[-1] == "True"


def test_a_kernels_window_interrupted_as_it_ends_is_over(tmp_path: Path) -> None:
    program = """
        watched.start("kernels")
        step()
        watched.mark_step()
        print(interrupted(mx.nd, "waitall", watched.stop), state() == before)
        print(watched.drain(Strings()).tables)
        print(sorted(window("memory").tables))
        watched.close()
    """
    assert run(program, tmp_path).splitlines() == ["True True", "{}", "['allocation', 'owner', 'span']"]


@pytest.mark.parametrize("kind", ["memory", "kernels"])
def test_what_is_raised_as_a_hook_is_closed_keeps_nothing_from_being_put_back(kind: str, tmp_path: Path) -> None:
    program = f"""
        watched.start({kind!r})
        step()
        print(interrupted(mx.nd, "waitall", watched.close))
        print(kernel_scenarios.identities() == untouched)
        watched.close()
        step()
        mx.nd.waitall()
    """
    assert run(program, tmp_path).splitlines() == ["True", "True"]


def test_an_engine_that_cannot_be_found_is_refused_in_one_line(tmp_path: Path) -> None:
    program = """
        engine._GET = "nowhere"
        try:
            watched.start("kernels")
        except UnavailableError as error:
            print(error)
        print(state() == before)
        watched.close()
    """
    assert run(program, tmp_path).splitlines() == [
        "this build of MXNet hides its engine: operators cannot be distinguished",
        "True",
    ]


def test_an_unknown_window_and_one_within_another_are_refused(tmp_path: Path) -> None:
    program = """
        watched.start("memory")
        for kind in ("clean", "kernels"):
            try:
                watched.start(kind)
            except UsageError as error:
                print(error)
        step()
        watched.mark_step()
        watched.stop()
        drained = watched.drain(Strings())
        print(len(drained.marks), drained.missing.keys(), state() == before)
        watched.close()
    """
    assert run(program, tmp_path).splitlines() == [
        "unknown window 'clean': choose memory or kernels",
        "a window is open already: stop it before the kernels window begins",
        "1 dict_keys(['layers', 'events (memory)']) True",
    ]
