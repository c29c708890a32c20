"""What torch's operators compute: translate names and arguments into a `tbdprof.facts.work.Work`.

An operator has a `Work` if its arguments give all of its sizes. An operator that only calls others (`aten::conv2d`,
`aten::linear`, attention built from matmuls) has a kind but no `Work`: the operators that it calls have one. An
in-place operator counts like the other form: it reads its target once and writes it once.
"""

from dataclasses import replace
from functools import lru_cache

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work, text
from tbdprof.hooks.on_torch.flops.operands import Argument, Arguments, Operand, Rule
from tbdprof.hooks.on_torch.flops.per_element import PER_ELEMENT
from tbdprof.hooks.on_torch.flops.products import PRODUCTS
from tbdprof.hooks.on_torch.session.events import COMMUNICATION

_NAMESPACE, _COLLECTIVES = "aten::", "c10d::"
_RULES: dict[str, tuple[Operation, Rule]] = {
    name: (operation, rule)
    for rules in (PRODUCTS, PER_ELEMENT)
    for operation, named in rules.items()
    for name, rule in named.items()
}
# Products without a rule, in which no operator with one is called.
_MATMULS = """
    _sparse_sparse_matmul _sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward
    _sparse_semi_structured_mm _sparse_semi_structured_addmm _cslt_sparse_mm _weight_int4pack_mm _weight_int8pack_mm
"""
_ATTENTIONS = """
    _flash_attention_forward _flash_attention_backward _efficient_attention_forward _efficient_attention_backward
"""
_QUANTIZED = ("quantized::linear", "quantized::conv", "onednn::qlinear", "onednn::qconv")
# Operators that call those above, and some whose arguments do not say what they compute.
_KINDS = {name: operation for name, (operation, _) in _RULES.items()} | {
    name: operation
    for operation, names in {
        Operation.CONVOLUTION: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc",
        Operation.MATMUL: f"linear matmul einsum bilinear tensordot {_MATMULS}",
        Operation.ATTENTION: "scaled_dot_product_attention _scaled_dot_product_attention_math "
        f"_native_multi_head_attention _transformer_encoder_layer_fwd {_ATTENTIONS}",
        Operation.RECURRENT: "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
        "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell _thnn_fused_gru_cell_backward",
        Operation.EMBEDDING: "embedding_backward embedding_bag _embedding_bag _embedding_bag_backward",
        Operation.NORMALIZATION: "batch_norm _batch_norm_impl_index layer_norm group_norm instance_norm rms_norm",
        Operation.ACTIVATION: "prelu log_sigmoid relu6 selu celu glu glu_backward rrelu",
        Operation.POOLING: "max_pool1d max_pool2d max_pool3d avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d adaptive_max_pool1d max_pool1d_with_indices",
        Operation.SOFTMAX: "softmax log_softmax _safe_softmax",
        Operation.LOSS: "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d l1_loss kl_div "
        "binary_cross_entropy_with_logits ctc_loss _ctc_loss _ctc_loss_backward",
        Operation.ELEMENTWISE: "dropout feature_dropout xlogy upsample_nearest2d upsample_nearest2d_backward "
        "upsample_bilinear2d upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d_backward",
        Operation.REDUCTION: "norm argmax argmin topk std var var_mean",
        Operation.COPY: "contiguous reshape stack index index_select index_put _index_put_impl gather scatter "
        "scatter_add constant_pad_nd pad zeros ones full zeros_like ones_like full_like repeat",
        Operation.BOOKKEEPING: "empty empty_like empty_strided empty_permuted new_empty resize resize_as set view "
        "_unsafe_view view_as _reshape_alias as_strided t transpose permute expand expand_as squeeze unsqueeze select "
        "slice narrow detach alias lift_fresh split split_with_sizes chunk unbind unfold flatten unflatten result_type "
        "resolve_conj resolve_neg conj item _local_scalar_dense sparse_dim dense_dim _nnz _indices _values",
    }.items()
    for name in names.split()
}
_WITHOUT_RULE = frozenset(f"{_MATMULS} {_ATTENTIONS}".split())


def kind_and_work(name: str, arguments: Arguments) -> tuple[Operation, Work | None]:
    """Return an operator's kind and its `Work`; the `Work` is None if there is none or the arguments do not give it."""
    if not has_work(name):
        return operation_of(name), None
    operation, rule = _RULES.get(plain(name), (Operation.COMMUNICATION, _sent))
    try:
        return operation, rule(arguments)
    except (IndexError, TypeError, ValueError, ArithmeticError):
        return operation, None  # another overload or release, with different arguments


def _sent(arguments: Arguments) -> Work:
    """Return the larger of what a collective operation is given and what it gives back."""
    sizes = [_bytes(argument) for argument in arguments]
    return Work(Operation.COMMUNICATION, moved_bytes=max(sizes, default=0) or None)


def _bytes(argument: Argument) -> int:
    if isinstance(argument, tuple):
        return sum(map(_bytes, argument))
    return argument.bytes if isinstance(argument, Operand) else 0


@lru_cache(maxsize=1 << 14)
def kind_and_text(name: str, arguments: Arguments, tf32: bool) -> tuple[Operation, str | None]:
    """Return an operator's kind and its `Work` as text; `tf32`: float32 matmuls and convolutions may use TF32."""
    operation, work = kind_and_work(name, arguments)
    if work is None:
        return operation, None
    if tf32 and operation in PRODUCTS and work.precision == "fp32":
        work = replace(work, precision="tf32")
    return operation, text(work)


def has_work(name: str) -> bool:
    """Return whether a rule can count an operator from its arguments."""
    return plain(name) in _RULES or name.startswith(_COLLECTIVES)


def operation_of(name: str) -> Operation:
    """Return the kind of an operator."""
    if name.startswith(COMMUNICATION):
        return Operation.COMMUNICATION
    if name.startswith(_QUANTIZED) and "pack" not in name:  # the weights are packed before
        return Operation.CONVOLUTION if "conv" in name else Operation.MATMUL
    return _KINDS.get(plain(name), Operation.OTHER)


def plain(name: str) -> str:
    """Return an aten operator's name without namespace and without an in-place operator's underscore, else ""."""
    return name.removeprefix(_NAMESPACE).removesuffix("_") if name.startswith(_NAMESPACE) else ""


def is_product(name: str) -> bool:
    """Return whether an operator itself multiplies matrices or convolves, and does not leave it to operators inside."""
    alone = has_work(name) or plain(name) in _WITHOUT_RULE or name.startswith(_QUANTIZED)
    return alone and operation_of(name) in PRODUCTS


def operation_of_products(name: str) -> Operation:
    """Return an operator's kind if it is counted as matmuls or convolutions, else OTHER."""
    operation = operation_of(name)
    return operation if has_work(name) and operation in PRODUCTS else Operation.OTHER
