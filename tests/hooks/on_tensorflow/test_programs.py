"""What XLA's programs for a GPU say of products: they are fused into instructions, or a library is called for them."""

from typing import Any

import pytest

hlo_pb2 = pytest.importorskip("tensorflow.compiler.xla.service.hlo_pb2")
xla = pytest.importorskip("tbdprof.hooks.on_tensorflow.kernels.xla")
from tbdprof.facts.records import Operation  # noqa: E402
from tbdprof.hooks.on_tensorflow.flops.products import product  # noqa: E402

OPERATOR = "model/dense/MatMul"


def program(opcodes: tuple[str, ...], target: str = "") -> Any:
    """A program of one instruction, "outer", in which others are fused: products of 8 × 16 and 16 × 4."""
    proto = hlo_pb2.HloProto()
    fused, entry = (proto.hlo_module.computations.add(id=place, name=f"part{place}") for place in (1, 2))
    for place, shape in ((10, (8, 16)), (11, (16, 4))):
        array = fused.instructions.add(id=place, name=f"array{place}", opcode="parameter")
        array.shape.dimensions.extend(shape)
    for place, opcode in enumerate(opcodes):
        inner = fused.instructions.add(id=20 + place, name=f"inner{place}", opcode=opcode, operand_ids=[10, 11])
        inner.shape.dimensions.extend((8, 4))
        inner.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
        inner.metadata.op_name = OPERATOR
    outer = entry.instructions.add(id=30, name="outer", opcode="custom-call" if target else "fusion")
    outer.custom_call_target = target
    outer.called_computation_ids.append(1)
    outer.metadata.op_name = OPERATOR
    return xla.Program(proto.SerializeToString())


def test_an_instruction_in_which_one_product_is_fused_is_that_product() -> None:
    read = program(("convert", "dot"))
    found = read.product_in(read.instruction("outer"))
    assert read.computes(found) is Operation.MATMUL
    assert read.work(found).sizes == product(1, 8, 4, 16)
    assert read.is_alone(found)


@pytest.mark.parametrize("inside", [("dot", "dot"), ("convert", "add")])
def test_one_in_which_there_are_two_or_none_is_no_product(inside: tuple[str, ...]) -> None:
    read = program(inside)
    assert read.computes(read.product_in(read.instruction("outer"))) is Operation.OTHER


@pytest.mark.parametrize(
    ("target", "operation"),
    [
        ("__cublas$gemm", Operation.MATMUL),
        ("__cublas$lt$matmul", Operation.MATMUL),
        ("__cudnn$convForward", Operation.CONVOLUTION),
        ("__cudnn$norm", Operation.OTHER),
    ],
)
def test_a_librarys_call_says_what_it_is_and_not_how_large(target: str, operation: Operation) -> None:
    read = program((), target)
    assert read.computes(read.instruction("outer")) is operation
    assert read.work(read.instruction("outer")) is None
