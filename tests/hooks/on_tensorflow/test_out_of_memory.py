"""Which of TensorFlow's errors mean that memory ran out, in the words TensorFlow 2.21 has for it on a GPU."""

import pytest

tf = pytest.importorskip("tensorflow")
out_of_memory = pytest.importorskip("tbdprof.hooks.on_tensorflow.out_of_memory")
from tbdprof.analysis.memory.post_mortem import asked_bytes  # noqa: E402
from tbdprof.hooks.on_tensorflow import ABOUT  # noqa: E402

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
SENTENCE = f"OOM when allocating tensor with shape[256,1024,1024] and type float on {GPU} by allocator GPU_0_bfc"
EAGER = f"{{{{function_node __wrapped__Fill_device_{GPU}}}}} {SENTENCE} [Op:Fill] name: "
FUNCTION = f"""Graph execution error:

Detected at node Fill defined at (most recent call last):
  File "train.py", line 9, in <module>

{SENTENCE}
\t [[{{{{node Fill}}}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add …
 [Op:__inference_f_15]"""
COMPILED = "Out of memory while trying to allocate 4294967296 bytes. [Op:__inference_step_305]"
COPY = (
    f"Failed copying input tensor from /job:localhost/replica:0/task:0/device:CPU:0 to {GPU} in order to run "
    "_EagerConst: Dst tensor is not initialized."
)


@pytest.mark.parametrize("message", [EAGER, FUNCTION])
def test_the_sentence_is_found_within_what_tensorflow_says_around_it(message: str) -> None:
    said = out_of_memory.said(tf.errors.ResourceExhaustedError(None, None, message))
    assert said == SENTENCE
    assert asked_bytes(said, ABOUT.failure_text) == 1 << 30


def test_a_compiled_region_says_the_bytes_themselves() -> None:
    said = out_of_memory.said(tf.errors.ResourceExhaustedError(None, None, COMPILED))
    assert said == "Out of memory while trying to allocate 4294967296 bytes."
    assert asked_bytes(said, ABOUT.failure_text) == 1 << 32


@pytest.mark.parametrize("error", [tf.errors.InternalError(None, None, COPY), RuntimeError(COPY.rpartition(": ")[2])])
def test_a_copy_that_finds_no_room_on_the_gpu_is_one_though_it_does_not_name_memory(error: Exception) -> None:
    said = out_of_memory.said(error)
    assert said is not None
    assert "Dst tensor is not initialized" in said
    assert asked_bytes(said, ABOUT.failure_text) is None


@pytest.mark.parametrize("error", [tf.errors.InternalError(None, None, "no kernel image"), RuntimeError("other")])
def test_other_errors_are_not(error: Exception) -> None:
    assert out_of_memory.said(error) is None
