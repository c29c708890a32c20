"""What inductor's code says of the operators that a kernel was made of, on code that is written out."""

import pytest

from tbdprof.hooks.on_torch.session.compiled import kernels, operators_in
from tbdprof.hooks.on_torch.session.events import Fused

CODE = """
# kernel path: /tmp/torchinductor/a.py
# Topologically Sorted Source Nodes: [linear, relu_1], Original ATen: [aten.addmm, aten.relu]
# Source node to ATen node mapping:
#   relu_1 => relu_1
triton_poi_fused_addmm_relu_0 = async_compile.triton('triton_poi_fused_addmm_relu_0', '''
import triton
# Topologically Sorted Source Nodes: [inside], Original ATen: [aten.inside]
''', device_str='cuda')

cpp_fused__log_softmax_relu_1 = async_compile.cpp_pybinding(['float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
''')
cpp_fused_2 = async_compile.cpp_pybinding(['float*'], r'''
''')
        # Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
        extern_kernels.mm(buf0, buf1, out=buf2)
"""


def test_a_comment_says_operators_and_nodes_and_a_name_says_operators() -> None:
    assert list(kernels(CODE)) == [
        Fused("triton_poi_fused_addmm_relu_0", ("addmm", "relu"), ("linear", "relu_1")),
        Fused("cpp_fused__log_softmax_relu_1", ("_log_softmax", "relu"), None),
        Fused("cpp_fused_2", None, None),
    ]


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("cpp_fused_sum_threshold_backward_3", ("sum", "threshold_backward")),
        ("graph_0_cpp_fused__log_softmax_relu_2", ("_log_softmax", "relu")),
        ("cpp_fused_add_copy__0", ("add", "copy_")),
        ("triton_red_fused__to_copy_native_layer_norm_12", ("_to_copy", "native_layer_norm")),
        ("cpp_fused_index_put_0", None),  # or index and put
        ("cpp_fused_relu_add_0", None),  # never in this order
        ("cpp_fused_no_operator_0", None),
        ("cpp_bmm_0", None),
    ],
)
def test_a_name_is_read_only_where_it_can_be_read_in_one_way(name: str, operators: tuple[str, ...] | None) -> None:
    assert operators_in(name) == operators
