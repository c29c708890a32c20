"""The probe finds the best operator of TensorFlow in a process of its own: the watched one does not see it."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[3]
SMALL = "probing.ARRAY_BYTES, probing.WIDTH, probing.CONVOLUTIONS = 1 << 20, 64, (probing.Convolution(8, 16, 3, 7),)"


@pytest.fixture(scope="module")
def seen() -> Any:
    """What a watched process saw of a small probe, and what one is made of."""
    program = f"""
        import json, os
        from dataclasses import asdict
        import tensorflow as tf
        from tbdprof.collect import fresh
        from tbdprof.errors import UnavailableError
        from tbdprof.hooks import probing
        from tbdprof.hooks.on_tensorflow import probe

        small = {SMALL!r}
        last = "importlib.import_module(module)"
        fresh._PROGRAM = fresh._PROGRAM.replace(last, "from tbdprof.hooks import probing; " + small + "; " + last)
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.random.set_seed(5)
        draw = lambda: tf.random.uniform((3,)).numpy().tolist()
        drawn = [draw()]
        used = lambda: tf.config.experimental.get_memory_info("CPU:0")
        before, environment = used(), dict(os.environ)
        peaks = probe.measure(["fp32", "fp16"])
        after, unchanged = used(), dict(os.environ) == environment
        drawn.append(draw())
        tf.random.set_seed(5)
        expected = [draw(), draw()]
        exec(small)
        names = {{each.name: each.amount for each in probe._products(tf.float32, 1)}}
        reasons = []
        for program in ("raise SystemExit('no such operator')", "print('[]')", "pass"):
            fresh._PROGRAM = program
            probe._measured.cache_clear()
            try:
                probe.measure(["fp32"])
            except UnavailableError as error:
                reasons.append(str(error))
        print(json.dumps([asdict(peaks), before, after, unchanged, expected, drawn, names, reasons]))
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TF_CPU_ALLOCATOR_USE_BFC": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_best_operator_is_named(seen: Any) -> None:
    peaks = seen[0]

    assert peaks["flops_per_s"].keys() == {"fp32"}
    assert peaks["flops_per_s"]["fp32"] > 0
    assert any(kind in peaks["sources"]["fp32"] for kind in ("convolution", "matrix product"))
    assert "1 thread, best of" in peaks["sources"]["fp32"]
    assert peaks["bytes_per_s"] > 0


def test_a_precision_without_a_probe_is_left_out_with_its_reason(seen: Any) -> None:
    assert seen[0]["sources"]["fp16"] == "not measured: TensorFlow has no probe for this precision on a CPU"


def test_the_watched_process_allocates_nothing_and_its_peak_stays(seen: Any) -> None:
    _, before, after, *_ = seen

    assert after == before


def test_the_random_generator_and_the_environment_are_as_before(seen: Any) -> None:
    _, _, _, unchanged, expected, drawn, *_ = seen

    assert unchanged
    assert drawn == expected


def test_the_amounts_are_those_of_the_sizes(seen: Any) -> None:
    assert seen[6] == {
        "matrix product 512×64×64": 2 * 512 * 64 * 64,
        "3×3 convolution 8→16, 7×7, batch 4": 2 * 8 * 16 * 9 * 49 * 4,
    }


def test_where_the_other_process_fails_the_peak_is_unavailable_with_the_reason(seen: Any) -> None:
    assert len(seen[7]) == 3
    assert seen[7][0] == "this CPU's peak is not known: a process that was to measure it failed: no such operator"


def test_the_precision_of_keras_policy_is_measured_besides() -> None:
    program = """
        import keras
        from tbdprof.hooks import probing
        from tbdprof.hooks.on_tensorflow import probe

        asked = []
        probing.apart = lambda framework, precisions, threads: asked.append(precisions)
        for policy in ("float32", "mixed_bfloat16", "float64"):
            keras.config.set_dtype_policy(policy)
            probe.measure(["fp32"])
        print(asked)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert done.stdout.splitlines()[-1:] == ["[('fp32',), ('fp32', 'bf16'), ('fp32', 'fp64')]"], done.stderr
