"""Each training runs in a process of its own: what MXNet allocates first is seen once a process.

The short programs are forks of one process that has imported MXNet and allocated nothing.
"""

import importlib.util
import os
import pickle
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import forking
import numpy as np
import pytest

from tbdprof.analysis.memory.blocks import BEFORE, NEVER, lifetimes
from tbdprof.analysis.memory.roles import classify, owned
from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.records import AllocationKind, Operation, Phase, Role, SpanKind
from tbdprof.hooks.on_mxnet import native
from tbdprof.hooks.on_mxnet.importing import why_not

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WEIGHTS_BYTES = 4 * (8 * 3 * 9 + 8 + 8 + 8 + 8 * 8 * 9 + 8 + 4 * 8 * 12 * 12 + 4)
BUFFERS_BYTES = 4 * (8 + 8)
TRAININGS = (
    "sgd",
    "adam",
    "static",
    "static_shape",
    "static_inside",
    "gan",
    "planted",
    "failing",
    "found",
    "dumped",
)


def environment(**others: str) -> dict[str, str]:
    """Return the environment of a program, without what names the running test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", **others}


def run(program: str, **others: str) -> str:
    """Run a program after which nothing may be wrong; return what it printed."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(textwrap.dedent(program))
        done = forking.run("mxnet", [str(file)], env=environment(**others), prepared=True, timeout_s=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["native", "python"])
def result(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):
    """Return what was recorded in the way that a user has after an installation, and in that without a C compiler."""
    if request.param == "native" and not native.BUILT.exists():
        pytest.skip("the native code is not built here: pip install -e .")
    path = tmp_path_factory.mktemp("mxnet") / "result.pickle"
    chosen = environment(TBDPROF_NATIVE="0" if request.param == "python" else "")
    words = [sys.executable, str(HERE / "scenarios.py"), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=chosen)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(HERE))
    try:
        return pickle.loads(path.read_bytes())
    finally:
        sys.path.remove(str(HERE))


def owned_bytes(window, role: Role, sequence: int) -> dict[str, int]:
    rows = window.tables["owner"]
    rows = rows[(rows["role"] == role) & (rows["sequence"] == sequence)]
    return {window.strings[row["name"]]: int(row["bytes"]) for row in rows}


def at_last_mark(window, role: Role) -> dict[str, int]:
    """What the reading just before the last mark found."""
    before = window.tables["owner"]["sequence"]
    return owned_bytes(window, role, int(before[before < window.marks[-1]].max()))


def phases(window) -> list[Phase]:
    rows = window.tables["span"]
    rows = np.sort(rows[rows["kind"] == SpanKind.PHASE], order="first_sequence")
    return [Phase(row["phase"]) for row in rows]


def sizes_made_in(window, phase: Phase) -> Counter[int]:
    spans, rows = window.tables["span"], window.tables["allocation"]
    rows = rows[rows["kind"] == AllocationKind.ALLOCATED]
    inside = {int(row["id"]) for row in spans if row["phase"] == phase} if phase else {-1}
    return Counter(int(row["requested_bytes"]) for row in rows if int(row["span"]) in inside)


@pytest.mark.parametrize("name", TRAININGS)
def test_after_every_event_the_blocks_add_up_to_mxnets_own_counter(result, name: str) -> None:
    _, levels = lifetimes(result.windows[name].tables["allocation"])

    assert result.independent_total is None
    assert len(levels.sequence) > 0
    assert levels.total_bytes.tolist() == levels.known_bytes.tolist()
    assert "allocations" not in result.windows[name].missing


def test_the_total_of_each_event_is_what_mxnets_profiler_writes_down(result) -> None:
    window = result.windows["dumped"]
    rows = window.tables["allocation"]
    totals = rows["total_bytes"][rows["kind"] != AllocationKind.EXISTING]

    counted = window.extra["counted"]
    assert len(counted) == len(totals) > 100
    # The profiler writes thread by thread.
    assert sorted(counted) == sorted(totals.tolist())


@pytest.mark.parametrize("name", TRAININGS)
def test_events_stand_in_one_order_and_owners_name_blocks_that_live(result, name: str) -> None:
    window = result.windows[name]
    rows, readings = window.tables["allocation"], window.tables["owner"]
    events = rows[rows["kind"] != AllocationKind.EXISTING]["sequence"]
    blocks, _ = lifetimes(rows)

    assert len(set(events.tolist())) == len(events)
    assert not set(events.tolist()) & set(readings["sequence"].tolist()) & set(window.marks)
    assert (blocks.find(readings["address"], readings["sequence"]) >= 0).all()
    assert window.marks == sorted(window.marks)


@pytest.mark.parametrize("name", ["sgd", "static", "static_shape"])
def test_owned_bytes_are_what_the_shapes_say(result, name: str) -> None:
    window = result.windows[name]

    assert sum(at_last_mark(window, Role.WEIGHT).values()) == WEIGHTS_BYTES
    assert sum(at_last_mark(window, Role.GRADIENT).values()) == WEIGHTS_BYTES
    assert sum(at_last_mark(window, Role.OPTIMIZER_STATE).values()) == WEIGHTS_BYTES
    assert at_last_mark(window, Role.BUFFER) == {"1.running_mean": 32, "1.running_var": 32}
    assert at_last_mark(window, Role.WEIGHT)["4.weight"] == 4 * 4 * 8 * 12 * 12
    assert "4.weight/momentum" in at_last_mark(window, Role.OPTIMIZER_STATE)


def test_adam_keeps_two_arrays_a_parameter(result) -> None:
    states = at_last_mark(result.windows["adam"], Role.OPTIMIZER_STATE)

    assert sum(states.values()) == 2 * WEIGHTS_BYTES
    assert {"4.bias/mean", "4.bias/variance"} <= states.keys()


def test_facts_name_parameters_and_optimizers(result) -> None:
    facts = result.windows["sgd"].facts
    names = [p.name for p in facts.parameters]

    assert facts.framework_version == "1.9.1"
    assert (facts.device, facts.threads) == ("cpu", 1)
    assert facts.runs_ahead
    assert names == [
        "0.weight",
        "0.bias",
        "1.gamma",
        "1.beta",
        "1.running_mean",
        "1.running_var",
        "3.weight",
        "3.bias",
        "4.weight",
        "4.bias",
    ]
    assert sum(p.item_bytes * int(np.prod(p.shape)) for p in facts.parameters if p.trainable) == WEIGHTS_BYTES
    assert [p.name for p in facts.parameters if p.is_buffer] == ["1.running_mean", "1.running_var"]
    (optimizer,) = facts.optimizers
    assert (optimizer.kind, dict(optimizer.settings)) == ("sgd", {"momentum": 0.9, "scalar_bytes": 0.0})
    assert len(optimizer.parameters) == 8


@pytest.mark.parametrize("name", ["sgd", "adam", "static", "found"])
def test_a_step_has_its_three_phases(result, name: str) -> None:
    assert phases(result.windows[name]) == [Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE] * 3


def test_a_gan_step_has_the_phases_of_both_networks(result) -> None:
    one = [Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]
    window = result.windows["gan"]

    assert phases(window) == (one + one) * 3
    assert {"generator.0.weight", "critic.0.weight"} <= at_last_mark(window, Role.WEIGHT).keys()


def test_planted_arrays_land_in_the_phase_they_were_made_in(result) -> None:
    window = result.windows["planted"]

    assert sizes_made_in(window, Phase.FORWARD)[4 * 1001] == 3
    assert sizes_made_in(window, Phase.UPDATE)[4 * 1003] == 3
    assert sizes_made_in(window, Phase.OUTSIDE)[4 * 1005] == 3


@pytest.mark.parametrize(("name", "known_before"), [("static", True), ("static_shape", True), ("static_inside", False)])
def test_what_a_planner_lays_out_is_found(result, name: str, known_before: bool) -> None:
    window = result.windows[name]
    spans = window.tables["span"]
    planned = spans[spans["operation"] == Operation.PLANNED]
    blocks, _ = lifetimes(window.tables["allocation"])
    pools = np.isin(blocks.span, planned["id"])

    # The maps of both convolutions (8×14×14 and 8×12×12, batch 2) are in them.
    assert blocks.size_bytes[pools].sum() > 4 * 2 * 8 * (14 * 14 + 12 * 12)
    assert (blocks.end[pools] == NEVER).all()
    assert (blocks.start[pools] == BEFORE).all() == known_before
    assert {window.strings[row["name"]] for row in planned} == {"CachedOp"}


@pytest.mark.parametrize("name", ["sgd", "adam", "gan"])
def test_without_a_planner_nothing_is_planned(result, name: str) -> None:
    assert not (result.windows[name].tables["span"]["operation"] == Operation.PLANNED).any()


@pytest.mark.parametrize("name", ["sgd", "adam", "static", "static_inside", "found"])
def test_nothing_is_unknown_to_the_analysis(result, name: str) -> None:
    window = result.windows[name]
    blocks, _ = lifetimes(window.tables["allocation"])
    named = owned(blocks, window.tables["owner"])

    roles = classify(blocks, named, SpanTree(window.tables["span"]), np.array(window.marks))

    assert blocks.size_bytes[roles == Role.UNKNOWN].sum() == 0
    assert blocks.size_bytes[roles == Role.WORKSPACE].sum() > 0


def test_inputs_are_named_where_root_blocks_are_called(result) -> None:
    rows = result.windows["sgd"].tables["owner"]
    sizes = Counter(rows["bytes"][rows["role"] == Role.INPUT].tolist())

    assert sizes[2 * 3 * 16 * 16 * 4] == 3  # images
    assert sizes[2 * 4] == 3  # labels


def test_models_are_found_and_the_search_ends(result) -> None:
    window = result.windows["found"]

    assert window.extra == {"finding": True, "resting": True, "updates": [True] * 5}
    assert sum(at_last_mark(window, Role.WEIGHT).values()) == WEIGHTS_BYTES


def test_an_error_of_the_script_passes_through_unchanged(result) -> None:
    assert result.windows["failing"].extra == {"seen": ["mine"]}


def test_the_peak_of_the_whole_run_holds_every_windows(result) -> None:
    peaks = [int(w.tables["allocation"]["total_bytes"].max()) for w in result.windows.values()]

    assert result.peak_bytes >= max(peaks) > WEIGHTS_BYTES


def test_everything_is_put_back(result) -> None:
    assert result.after == result.before
    assert result.after["running"] == 0


TRAINING = """
    import sys
    from tbdprof.hooks import Setting
    from tbdprof.hooks.on_mxnet import hook
    watched = hook()
    watched.set_environment(Setting())
    if {hooked}:
        watched.prepare(Setting())
    import mxnet as mx
    sys.path.insert(0, {here!r})
    import scenarios
    mx.random.seed(7)
    model = scenarios.net(active=True)
    trainer, step = scenarios.training(model, momentum=0.9)
"""


def after_training(then: str, *, hooked: bool = True, **environment: str) -> str:
    program = textwrap.dedent(TRAINING.format(hooked=hooked, here=str(HERE))) + textwrap.dedent(then)
    return run(program, **environment)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_numbers_are_the_same_to_the_last_bit(threads: str) -> None:
    then = """
        import hashlib
        if {hooked}:
            watched.watch([model], [trainer])
            scenarios.record(watched, step)
        else:
            for _ in range(5):
                step()
        values = b"".join(p.data().asnumpy().tobytes() for p in model.collect_params().values())
        print(hashlib.sha256(values).hexdigest())
    """
    printed = {
        after_training(then.format(hooked=hooked), hooked=hooked, OMP_NUM_THREADS=threads, TBDPROF_NATIVE=native)
        for hooked, native in ((False, ""), (True, ""), (True, "0"))
    }

    assert len(printed) == 1


def test_a_process_with_work_left_ends_well() -> None:
    printed = after_training(
        """
        watched.watch([model], [trainer])
        watched.start("memory")
        for _ in range(5):
            step()
        print("left", flush=True)
        """
    )

    assert printed == "left\n"


def test_a_forked_child_is_left_alone() -> None:
    printed = after_training(
        """
        import os
        watched.watch([model], [trainer])
        watched.start("memory")
        step()
        before = watched._joined.allocator.tick()
        child = os.fork()
        if not child:
            a = mx.nd.ones((100, 100)) * 2
            good = a.asnumpy().sum() == 20000 and not watched._joined.allocator._slots
            os._exit(0 if good else 1)
        _, status = os.waitpid(child, 0)
        step()
        watched.mark_step()
        print(os.waitstatus_to_exitcode(status), watched._joined.allocator.tick() > before + 1)
        watched.close()
        """
    )

    assert printed == "0 True\n"


def test_who_comes_late_says_so_and_a_second_hook_works() -> None:
    printed = after_training(
        """
        step()
        watched.close()
        second = hook()
        second.attach()
        second.watch([model], [trainer])
        window = scenarios.record(second, step, warmup=1)
        rows = window.tables["allocation"]
        print(second.whole_run_peak_bytes, second.independent_total.partition(":")[0])
        print(second.watched_since)
        print(set(rows["total_bytes"].tolist()), int((rows["kind"] == 2).sum()) >= 3 * 8 + 2)
        second.close()
        """
    )

    assert printed == (
        "None counting began after MXNet had allocated\nprofile() was called, after MXNet had allocated\n{-1} True\n"
    )


def test_two_hooks_cannot_watch_at_once() -> None:
    printed = after_training(
        """
        from tbdprof.errors import UnavailableError
        try:
            hook().attach()
        except UnavailableError as error:
            print("only one can watch at a time" in str(error))
        step()
        watched.close()
        """
    )

    assert printed == "True\n"


def test_hooks_come_and_go_and_the_process_follows_forks_once() -> None:
    printed = run(
        """
        import os
        registered, register = [], os.register_at_fork
        os.register_at_fork = lambda **handlers: (registered.append(handlers), register(**handlers))
        from tbdprof.hooks import Setting
        from tbdprof.hooks.on_mxnet import hook
        hook().set_environment(Setting())
        import mxnet as mx
        registered.clear()
        for _ in range(3):
            watched = hook()
            watched.attach()
            watched.close()
        print(len(registered))
        last = hook()
        last.attach()
        child = os.fork()
        if not child:
            os._exit(0 if not last._joined.allocator._slots else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(last._joined.allocator._slots))
        last.close()
        """
    )

    assert printed == "1\n0 2\n"


def test_what_updates_a_given_model_is_found_and_what_does_not_is_not() -> None:
    printed = after_training(
        """
        other = scenarios.net()
        _, other_step = scenarios.training(other, "adam")
        watched.watch([model], [])
        window = scenarios.record(watched, lambda: (other_step(), step()))
        print([each.kind for each in window.facts.optimizers], len(window.facts.parameters))
        """
    )

    assert printed == "['sgd'] 10\n"


def test_a_given_trainers_model_is_found() -> None:
    printed = after_training(
        """
        watched.watch([], [trainer])
        window = scenarios.record(watched, step)
        print([p.name for p in window.facts.parameters][:2], len(window.facts.optimizers))
        """
    )

    assert printed == "['0.weight', '0.bias'] 1\n"


def test_a_device_left_to_choose_is_where_the_parameters_are() -> None:
    """A machine with a GPU, stood in for by one whose count is 1."""
    printed = after_training(
        """
        watched.close()
        mx.context.num_gpus = lambda: 1
        from tbdprof.hooks.on_mxnet.session import layout
        layout.is_untouched = lambda: False
        second = hook()
        second.prepare(Setting(device="auto"))
        first = second.facts().device
        step()
        second.watch([model], [trainer])
        given = second.facts().device
        del model, trainer, step
        import gc
        gc.collect()
        print(first, given, second.facts().device, len(second.facts().parameters))
        second.close()
        """
    )

    assert printed == "cuda:0 cpu cpu 0\n"


def test_a_running_profiler_of_the_scripts_own_is_refused() -> None:
    printed = run(
        """
        from tbdprof.errors import UnavailableError
        from tbdprof.hooks import Setting
        from tbdprof.hooks.on_mxnet import hook
        watched = hook()
        watched.set_environment(Setting())
        import mxnet as mx
        mx.profiler.set_config(profile_memory=True, continuous_dump=False, filename="")
        mx.profiler.set_state("run")
        try:
            watched.prepare(Setting())
        except UnavailableError as error:
            print(error)
        mx.profiler.set_state("stop")
        """
    )

    assert printed == "MXNet's own profiler is running: leave mx.profiler off while tbdprof records\n"


def test_a_profiler_switched_on_by_the_script_keeps_a_window_from_opening() -> None:
    printed = after_training(
        """
        from tbdprof.errors import UnavailableError
        mx.profiler.set_config(profile_all=True, continuous_dump=False, filename="")
        try:
            watched.start("memory")
        except UnavailableError as error:
            print("leave mx.profiler off" in str(error))
        watched.close()
        """
    )

    assert printed == "True\n"


def test_threads_and_environment_come_and_go() -> None:
    printed = run(
        """
        import os
        from tbdprof.hooks import Setting
        from tbdprof.hooks.on_mxnet import hook
        watched = hook()
        watched.prepare(Setting(device="cpu", threads=2))
        print(os.environ["OMP_NUM_THREADS"], watched.facts().threads)
        watched.close()
        watched.close()
        print(os.environ["OMP_NUM_THREADS"])
        """,
        OMP_NUM_THREADS="1",
    )

    assert printed == "2 2\n1\n"


def test_out_of_memory_is_reported_in_mxnets_words() -> None:
    printed = after_training(
        """
        import resource
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 29), resource.RLIM_INFINITY))
        try:
            mx.nd.ones((1 << 28,)).wait_to_read()
        except mx.base.MXNetError as error:
            print(watched.out_of_memory(error))
        print(watched.out_of_memory(MemoryError("1 TiB")), watched.out_of_memory(ValueError("out of memory")))
        watched.close()
        """
    )

    first, second = printed.splitlines()
    assert "Failed to allocate CPU Memory" in first
    assert second == "1 TiB None"


def test_failures_to_read_owners_do_not_reach_the_loop() -> None:
    """Each reading fails in turn: the weights are those of a run without tbdprof, and the memory window is given up."""
    printed = run(
        """
        import tbdprof
        from tbdprof.errors import UnavailableError

        tbdprof.prepare("mxnet")
        import mxnet as mx
        from tbdprof.hooks.on_mxnet.facade import MxnetHook
        from tbdprof.hooks.on_mxnet.watch import owners

        def unknown(*_):
            raise UnavailableError("not measured in this test")

        MxnetHook.peaks = unknown
        for name in ("inputs", "gradients_of", "state", "workspaces"):
            original = getattr(owners, name)

            def fails(*_):
                raise KeyError("planted")

            net = mx.gluon.nn.Dense(1, in_units=2)
            net.initialize(mx.init.One())
            trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
            with tbdprof.profile(net, trainer, warmup=1, steps=1) as prof:
                for steps in range(1, 5):
                    with mx.autograd.record():
                        loss = net(mx.nd.ones((1, 2)))
                    loss.backward()
                    trainer.step(1)
                    prof.step(1)
                    setattr(owners, name, fails if steps == 2 else original)  # the third is in the window
            setattr(owners, name, original)
            print(name, net.weight.data()[0, 0].asscalar() == 1 - steps, prof.recording.missing.get("memory"))
        """
    )
    lines = printed.splitlines()
    assert len(lines) == 4
    assert all(" True " in line and "failed in the memory window" in line and "planted" in line for line in lines)


def test_training_in_two_threads_is_reported_and_ends() -> None:
    printed = after_training(
        """
        import threading
        other = scenarios.net(active=True)
        other_trainer, other_step = scenarios.training(other)
        watched.watch([model, other], [trainer, other_trainer])
        step(); other_step()
        watched.start("memory")
        begin = threading.Barrier(2)
        def work(one):
            begin.wait()
            for _ in range(20):
                one()
        threads = [threading.Thread(target=work, args=(one,)) for one in (step, other_step)]
        [each.start() for each in threads]
        [each.join() for each in threads]
        watched.mark_step()
        watched.stop()
        from tbdprof.facts.records import Strings
        from tbdprof.analysis.memory.blocks import lifetimes
        drained = watched.drain(Strings())
        _, levels = lifetimes(drained.tables["allocation"])
        print("phases" in drained.missing, bool((levels.total_bytes == levels.known_bytes).all()))
        watched.close()
        """
    )

    assert printed == "False True\n"  # the threads took turns by phases


def test_a_block_inside_a_custom_operator_does_not_wait_for_itself() -> None:
    printed = after_training(
        """
        from mxnet import autograd
        inner = mx.gluon.nn.Dense(4, in_units=4)
        inner.initialize()
        class Call(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], inner(in_data[0]))
            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                self.assign(in_grad[0], req[0], out_grad[0])
        @mx.operator.register("call")
        class CallProp(mx.operator.CustomOpProp):
            def create_operator(self, context, shapes, types):
                return Call()
        class Outer(mx.gluon.nn.Block):
            def forward(self, x):
                return mx.nd.Custom(x, op_type="call")
        x = mx.nd.ones((2, 4))
        x.attach_grad()
        outer = Outer()
        watched.start("memory")
        with autograd.record():
            y = outer(x)
        y.backward()
        watched.mark_step()
        watched.stop()
        print(x.grad.asnumpy().sum())
        watched.close()
        """
    )

    assert printed == "8.0\n"


@pytest.mark.parametrize("frees", [((100, 60), (60, 0)), ((60, 0), (100, -100))])
def test_a_block_made_where_another_ends_is_reported_after_that_end(frees: tuple[tuple[int, int], ...]) -> None:
    """A thread may report its free after another thread has got the same address, or has even given it back.

    Each free is its size and MXNet's counter without the block whose free is still to come.
    """
    printed = run(
        f"""
        from tbdprof.hooks import Setting
        from tbdprof.hooks.on_mxnet import hook
        hook().set_environment(Setting())
        from tbdprof.hooks.on_mxnet.memory.python_allocator import PythonAllocator
        from tbdprof.hooks.on_mxnet.session.layout import Handle
        allocator = PythonAllocator()
        allocator.open()
        allocator._allocated(Handle(16, 100, 1), 100)
        allocator._allocated(Handle(16, 60, 1), 160)
        for size, total in {frees}:
            allocator._freed(Handle(16, size, 1), total)
        for event in allocator.close():
            print(*event[["sequence", "kind", "size_bytes", "total_bytes"]])
        print(allocator.live, allocator.levels[1].now_bytes, allocator.levels[1].peak_bytes)
        print(repr(allocator.disagreements()))
        """
    )

    assert printed.splitlines() == [
        "1 1 100 100",
        "2 0 100 0",
        "3 1 60 60",
        "4 0 60 0",
        "{} 0 100",
        "''",
    ]


def test_garbage_that_is_collected_while_a_window_opens_may_free_blocks() -> None:
    printed = run(
        """
        from tbdprof.hooks import Setting
        from tbdprof.hooks.on_mxnet import hook
        hook().set_environment(Setting())
        from tbdprof.hooks.on_mxnet.memory.blocks import Block
        from tbdprof.hooks.on_mxnet.memory.python_allocator import PythonAllocator
        from tbdprof.hooks.on_mxnet.session.layout import Handle
        allocator = PythonAllocator()

        class Collecting(Block):
            def _replace(self, **changes):
                allocator._freed(Handle(32, 60, 1), 100)
                return Block(*self)._replace(**changes)

        allocator._allocated(Handle(16, 100, 1), 100)
        allocator._allocated(Handle(32, 60, 1), 160)
        allocator.live[16] = Collecting(*allocator.live[16])
        print(allocator.open())
        print(allocator.close()[["kind", "size_bytes"]].tolist())
        """
    )

    assert printed.splitlines() == [
        "{16: Block(device=1, size_bytes=100, maker=None, sequence=0, allocated_bytes=100)}",
        "[(0, 60)]",
    ]


def test_events_that_contradict_each_other_are_counted_and_reported() -> None:
    printed = run(
        """
        from tbdprof.hooks import Setting
        from tbdprof.hooks.on_mxnet import hook
        hook().set_environment(Setting())
        from tbdprof.hooks.on_mxnet.memory.python_allocator import PythonAllocator
        from tbdprof.hooks.on_mxnet.session.layout import Handle
        allocator = PythonAllocator()
        allocator.open()
        allocator._allocated(Handle(16, 100, 1), 100)
        allocator._freed(Handle(16, 96, 1), 4)
        allocator._allocated(Handle(32, 100, 1), 104)
        allocator._allocated(Handle(32, 60, 1), 164)
        print(allocator.disagreements())
        allocator._freed(Handle(32, 50, 1), 114)
        print(allocator.disagreements())
        """
    )

    assert printed.splitlines() == [
        "1 frees reported another size than was allocated; 1 allocations at addresses still in use",
        "2 frees reported another size than was allocated",
    ]


@pytest.mark.parametrize(
    ("wanted", "gpus", "expected"),
    [
        ("auto", 0, "cpu"),
        ("cpu", 1, "cpu"),
        ("auto", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
        ("cuda", 0, "MXNet sees no CUDA device: choose --device cpu"),
        ("cuda:2", 2, "MXNet sees no device cuda:2: the last one is cuda:1"),
        ("gpu", 1, "unknown device 'gpu': choose auto, cpu, cuda or cuda:N"),
        ("cuda:3", 4, "MXNet's wheels hold no code for this GPU (compute capability 9.0): choose --device cpu"),
    ],
)
def test_devices_are_chosen_or_refused_in_one_line(wanted: str, gpus: int, expected: str) -> None:
    printed = run(
        f"""
        from tbdprof.collect.gpu.cuda_driver import Limits
        from tbdprof.errors import TbdprofError, UnavailableError
        from tbdprof.hooks import Setting
        from tbdprof.hooks.on_mxnet import hook
        hook().set_environment(Setting())
        from tbdprof.hooks.on_mxnet import facts
        facts.mx.context.num_gpus = lambda: {gpus}

        def limits(number):
            if number == 0:
                raise UnavailableError("the CUDA driver does not answer")
            return Limits("a GPU", {{1: "8.9", 3: "9.0"}}[number], 1, 1.0, None)

        try:
            print(facts.choose_device({wanted!r}, limits))
        except TbdprofError as error:
            print(error)
        """
    )

    assert printed == expected + "\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModuleNotFoundError("No module named 'mxnet'", name="mxnet"), "pip install 'tbdprof[mxnet]'"),
        (OSError("libgomp.so.1: cannot open shared object file"), "apt-get install -y libgomp1 libquadmath0"),
        (OSError("libquadmath.so.0: file too short"), "apt-get install -y libgomp1 libquadmath0"),
        (OSError("libcudnn.so.8: cannot open shared object file"), "is for CUDA, whose libraries are not here"),
        (AttributeError("module 'numpy' has no\nattribute 'PZERO'"), "MXNet cannot be imported: module 'numpy' has no"),
    ],
)
def test_an_import_that_fails_says_what_to_do_in_one_line(error: Exception, expected: str) -> None:
    message = why_not(error)

    assert expected in message
    assert "\n" not in message


def test_in_a_clean_window_nothing_of_tbdprof_runs_but_around_the_trainers_step() -> None:
    if not native.BUILT.exists():
        pytest.skip("the native code is not built here: pip install -e .")
    printed = after_training(
        """
        from collections import Counter
        from tbdprof.hooks.on_mxnet import native
        from tbdprof.hooks.on_mxnet.memory import jump_slots
        watched.watch([model], [trainer])
        updates, called = [], Counter()
        watched.on_update(updates.append)
        for _ in range(2):
            step()
        watched.start("memory")
        step()
        watched.mark_step()
        watched.stop()

        def see(frame, event, _argument):
            if event == "call" and frame.f_globals["__name__"].startswith("tbdprof."):
                called[frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name] += 1

        sys.setprofile(see)  # the engine's threads are not seen, but the functions that they call are looked at below
        step()
        mx.nd.waitall()
        sys.setprofile(None)
        own, _ = jump_slots._mapped(str(native.BUILT))
        print(len(updates), all(jump_slots._inside(slot.read(), own) for slot in watched._joined.allocator._slots))
        print(sum(called.values()), *called)
        """,
        TBDPROF_NATIVE="",
    )
    first, second = printed.splitlines()

    assert first == "4 True"
    count, *names = second.split()
    assert 0 < int(count) <= 12, names
