"""The probe finds the best operator of MXNet in a process of its own: the watched one does not see it."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[3]


def run(program: str) -> str:
    """Run a program in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def seen() -> dict:
    """Return what a watched process saw of the probe."""
    return json.loads(
        run(
            """
            import json, os
            from dataclasses import asdict
            from tbdprof.hooks import Setting
            from tbdprof.hooks.on_mxnet import hook

            hook = hook()
            hook.prepare(Setting(device="cpu", threads=1, seed=5))
            import mxnet as mx

            draw = lambda: mx.nd.random.uniform(shape=3).asnumpy().tolist()
            expected = draw()
            mx.random.seed(5)
            mx.nd.waitall()
            levels = lambda: {k: [v.now_bytes, v.peak_bytes] for k, v in hook._joined.allocator.levels.items()}
            before, environment = levels(), dict(os.environ)
            peaks = hook.peaks(["fp32", "bf16"])
            mx.nd.waitall()
            after, unchanged = levels(), dict(os.environ) == environment
            drawn = draw()
            print(json.dumps([asdict(peaks), before, after, unchanged, expected, drawn, mx.autograd.is_recording()]))
            hook.close()
            """
        ).splitlines()[-1]
    )


def test_the_best_operator_is_named(seen: list) -> None:
    peaks = seen[0]

    assert peaks["flops_per_s"].keys() == {"fp32"}
    assert peaks["flops_per_s"]["fp32"] > 0
    assert any(kind in peaks["sources"]["fp32"] for kind in ("convolution", "dense layer", "matrix product"))
    assert "1 thread, best of" in peaks["sources"]["fp32"]
    assert peaks["bytes_per_s"] > 0
    assert "128.00 MiB" in peaks["sources"]["memory"]


def test_a_precision_without_a_probe_is_left_out_with_its_reason(seen: list) -> None:
    assert seen[0]["sources"]["bf16"] == "not measured: MXNet has no probe for this precision on a CPU"


def test_the_watched_process_allocates_nothing(seen: list) -> None:
    _, before, after, *_ = seen

    assert after == before


def test_the_random_generator_the_environment_and_autograd_are_as_before(seen: list) -> None:
    *_, unchanged, expected, drawn, recording = seen

    assert unchanged
    assert drawn == expected
    assert not recording


def test_a_planted_slow_operator_does_not_win_and_the_amounts_are_those_of_the_sizes() -> None:
    printed = run(
        """
        import numpy, json
        from dataclasses import asdict
        vars(numpy).setdefault("bool", bool)
        from tbdprof.hooks import probing
        probing.ARRAY_BYTES, probing.WIDTH, probing.CONVOLUTIONS = 1 << 20, 64, (probing.Convolution(8, 16, 3, 7),)
        import mxnet as mx
        from tbdprof.hooks.on_mxnet import probe

        products = probe._products
        names = {each.name: each.amount for each in products("float32", 1)}

        def slowly():
            left = mx.nd.full((512, 64), 0.5)
            def run():
                for _ in range(50):
                    mx.nd.dot(left, left, transpose_b=True).wait_to_read()
            return run

        probe._products = lambda *of: [probing.Candidate("planted", 2 * 512 * 64 * 64, slowly), *products(*of)]
        print(json.dumps([names, asdict(probe.here(["fp32", "fp64"], 1))]))
        """
    )
    names, peaks = json.loads(printed.splitlines()[-1])

    assert names == {
        "matrix product 512×64×64": 2 * 512 * 64 * 64,
        "dense layer 512×64×64": 2 * 512 * 64 * 64,
        "3×3 convolution 8→16, 7×7, batch 4": 2 * 8 * 16 * 9 * 49 * 4,
    }
    assert peaks["flops_per_s"].keys() == {"fp32", "fp64"}
    assert not [source for source in peaks["sources"].values() if "planted" in source]


def test_where_the_other_process_fails_the_peak_is_unavailable_with_the_reason() -> None:
    printed = run(
        """
        import numpy
        vars(numpy).setdefault("bool", bool)
        from tbdprof.collect import fresh
        from tbdprof.errors import UnavailableError
        from tbdprof.hooks.on_mxnet import probe

        for program in ("raise SystemExit('no such operator')", "print('[]')", "pass"):
            fresh._PROGRAM = program
            try:
                probe.measure(["fp32"])
            except UnavailableError as error:
                print(error)
        """
    ).splitlines()

    assert len(printed) == 3
    assert printed[0] == "this CPU's peak is not known: a process that was to measure it failed: no such operator"
