"""What Keras's layers and optimizers hold, on any backend; this module imports neither Keras nor a framework."""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

IsLayer = Callable[[object], bool]
OF_FIT = "the batch size of fit"


def is_keras(layer: object) -> bool:
    """Return whether Keras calls a layer."""
    # Check only the type of an unknown object: reading more of it may run the user's code.
    return hasattr(type(layer), "_open_name_scope")


def children(layer: Any, is_layer: IsLayer = is_keras) -> Iterator[tuple[str, Any]]:
    """Yield a layer's parts with their names in it: the attribute's name, or in a sequence the part's own name."""
    seen: set[int] = {id(layer)}
    for name, value in _attributes(layer):
        for label, child in _inside(name, value, is_layer):
            if id(child) not in seen:
                seen.add(id(child))
                yield label, child
    for child in getattr(layer, "_layers", None) or ():
        if is_layer(child) and id(child) not in seen:
            seen.add(id(child))
            yield str(child.name), child


def parts(path: str, layer: Any, is_layer: IsLayer = is_keras) -> Iterator[tuple[str, Any]]:
    """Yield a layer and all parts of it by their paths, each once."""
    yield from _each_once(path, layer, is_layer, set())


def own_variables(layer: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield the variables that a layer of Keras has itself, with their names in it and whether each is a buffer."""
    yield from ((each.name, each, False) for each in layer._trainable_variables)  # noqa: SLF001 - only its own
    yield from ((each.name, each, True) for each in layer._non_trainable_variables)  # noqa: SLF001


def named_layers(model: Any) -> list[tuple[str, Any]] | None:
    """Return a Keras model's layers by their paths in it, each once; None for any other object."""
    return list(parts("", model)) if is_keras(model) else None


def named_variables(model: Any) -> list[tuple[str, Any, bool]] | None:
    """Return a Keras model's variables, each with its name and whether it is a buffer; None as `named_layers`."""
    if not is_keras(model):
        return None
    found: dict[int, tuple[str, Any, bool]] = {}
    for path, layer in parts("", model):
        for name, variable, is_buffer in own_variables(layer):
            found.setdefault(id(variable), (f"{path}.{name}" if path else name, variable, is_buffer))
    for each in getattr(model, "variables", ()):  # those of seeds and metrics belong to no layer
        found.setdefault(id(each), (each.path.replace("/", "."), each, not each.trainable))
    return list(found.values())


def trained_by(optimizer: Any) -> list[Any]:
    """Return the variables that an optimizer updates; none before it knows them."""
    return list(getattr(optimizer, "_trainable_variables", ()))


def batch_size_of_fit(models: Sequence[Any], least: int) -> int | None:
    """Return the samples of a step of the `fit` that runs now; None without one, or where it does not know.

    It is None, too, where an epoch's last batch is smaller and it has fewer than `least` batches.
    """
    kind = getattr(sys.modules.get("keras.src.trainers.epoch_iterator"), "EpochIterator", None)
    if kind is None:
        return None
    validating = {id(getattr(model, "_eval_epoch_iterator", None)) for model in models}
    every = [each for each in gc.get_objects() if issubclass(type(each), kind) and id(each) not in validating]
    sizes = {_batch_size(each, least) for each in every}
    return sizes.pop() if len(sizes) == 1 else None


def _batch_size(iterator: Any, least: int) -> int | None:
    try:
        adapter = iterator.data_adapter
        size = adapter.batch_size or _batched_by(getattr(adapter, "_dataset", None))
        is_short = adapter.has_partial_batch and (adapter.num_batches or least) < least
        return None if not isinstance(size, int) or is_short else size * int(iterator.steps_per_execution)
    except Exception:  # noqa: BLE001 - a data set of the user's own may raise anything
        return None


def _batched_by(dataset: Any) -> int | None:
    """Return the size that a data set of TensorFlow was last batched with; its shapes do not show it."""
    while dataset is not None:
        size = getattr(dataset, "_batch_size", None)
        if size is not None and hasattr(size, "numpy"):
            return int(size.numpy())
        dataset = getattr(dataset, "_input_dataset", None)
    return None


def slots(optimizer: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield an optimizer's state as (slot name, trained variable, state); the variable is None for a shared state."""
    trained, yielded = trained_by(optimizer), set[int]()
    for attribute, value in vars(optimizer).items():
        if attribute in ("_variables", "_trainable_variables") or not isinstance(value, list):
            continue
        if trained and len(value) == len(trained) and all(each is None or _is_variable(each) for each in value):
            for variable, state in zip(trained, value, strict=True):
                if state is not None:
                    yielded.add(id(state))
                    yield _slot(variable, state) or attribute.strip("_"), variable, state
    for state in getattr(optimizer, "variables", ()):
        if id(state) not in yielded:
            yield str(state.name), None, state


def _slot(variable: Any, state: Any) -> str:
    """Return what Keras appended to a variable's path to name its state, or "" if it named the state otherwise."""
    path = getattr(variable, "path", None) or str(variable.name).replace(":", "_")
    before = f"{path.replace('/', '_')}_"
    return str(state.name).removeprefix(before) if state.name.startswith(before) else ""


def _is_variable(thing: object) -> bool:
    return hasattr(thing, "path") and hasattr(thing, "value")


def _each_once(path: str, layer: Any, is_layer: IsLayer, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    yield path, layer
    for label, child in children(layer, is_layer):
        yield from _each_once(f"{path}.{label}" if path else label, child, is_layer, seen)


def _attributes(layer: Any) -> Iterator[tuple[str, Any]]:
    own = dict(vars(layer)) if hasattr(layer, "__dict__") else {}
    of_torch = own.get("_modules")  # where torch keeps a module's parts; elsewhere it is a name as any other
    if isinstance(of_torch, Mapping):
        own.update(of_torch)
    yield from ((name, value) for name, value in own.items() if not name.startswith("_"))


def _inside(name: str, value: Any, is_layer: IsLayer) -> Iterator[tuple[str, Any]]:
    if is_layer(value):
        yield name, value
    elif isinstance(value, Mapping):
        yield from ((f"{name}.{key}", each) for key, each in value.items() if is_layer(each))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield from ((f"{name}.{place}", each) for place, each in enumerate(value) if is_layer(each))
