"""The models and optimizers that are watched."""

import weakref
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch.utils._pytree import tree_leaves

from tbdprof.facts.records import Role
from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.keras_objects import named_layers, named_variables
from tbdprof.hooks.naming import prefixes
from tbdprof.hooks.on_torch.devices import device_text
from tbdprof.hooks.on_torch.session.events import Owned

Named = Sequence[tuple[str, torch.Tensor]]
_Place = tuple[str, weakref.ref[torch.nn.Module], str]  # the full name, the module that has it, its name there
_PARTS = ("_parameters", "_buffers", "_modules")
_LISTS: tuple[str, ...] = ("named_parameters", "named_buffers", "named_modules", "modules")


class Watched:
    """The models and optimizers whose memory is named, held by weak references.

    With one model, names have no prefix. With several, each name begins with its model's class in lower case, and with
    a number if a class occurs twice: `generator.`, `critic0.`, `critic1.`.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._inputs: list[weakref.ref[torch.Tensor]] = []
        self._loose: list[weakref.ref[torch.Tensor]] = []  # weights that are in no model and no optimizer
        self._without_holder: list[int] = []  # models that no module was found to hold
        self._listings = _Listings()
        self.rows: dict[Role, dict[str, Owned]] = {}  # as they were last read in this window

    def add_model(self, model: torch.nn.Module) -> bool:
        """Watch a model, and no longer its parts on their own; return false if it is watched already."""
        known = self.models()
        if any(model is part for root in known for part in _modules_of(root)):
            return False
        parts = _modules_of(model)
        roots = [root for root in known if not any(root is part for part in parts)]
        self._models = [weakref.ref(root) for root in [*roots, model]]
        return True

    def add_holder(self) -> bool:
        """Watch the module that holds all of several models, and so calls them itself; return false if there is none.

        Several is what is found where a library calls a method of a model, such as `training_step`, and not the model.
        """
        known = self.models()
        numbers = [id(model) for model in known]
        if len(known) < 2 or numbers == self._without_holder:
            return False
        holder = _holder_of(known)
        if holder is None:
            self._without_holder = numbers
            return False
        return self.add_model(holder)

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> bool:
        """Watch an optimizer; return false if it is watched already."""
        if self.knows(optimizer):
            return False
        self._optimizers.append(weakref.ref(optimizer))
        return True

    def knows(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether an optimizer is watched."""
        return any(optimizer is known for known in self.optimizers())

    def add_inputs(self, inputs: Sequence[object]) -> None:
        """Watch the tensors in `inputs`, which hold mini-batches from step to step."""
        tensors = (leaf for leaf in tree_leaves(list(inputs)) if isinstance(leaf, torch.Tensor))
        self._inputs += [weakref.ref(tensor) for tensor in tensors]

    def set_loose(self, weights: Sequence[torch.Tensor]) -> None:
        """Watch these weights, which no model and no optimizer holds, instead of those that were set before."""
        self._loose = [weakref.ref(weight) for weight in weights]

    def inputs(self) -> list[torch.Tensor]:
        """Return the kept inputs that still exist."""
        return [tensor for ref in self._inputs if (tensor := ref()) is not None]

    def models(self) -> list[torch.nn.Module]:
        """Return the models that still exist."""
        return [model for ref in self._models if (model := ref()) is not None]

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizers that still exist."""
        return [optimizer for ref in self._optimizers if (optimizer := ref()) is not None]

    def prefixes(self) -> list[tuple[str, torch.nn.Module]]:
        """Return each model with the prefix of its names."""
        return prefixes(self.models())

    def parameters(self) -> Named:
        """Return the models' parameters, each once, and those that only an optimizer holds or nothing known holds."""
        named: list[tuple[str, torch.Tensor]] = [
            (prefix + _plain(name), parameter)
            for prefix, model in self.prefixes()
            for name, parameter in self._parameters_of(model)
        ]
        known = {id(parameter) for _, parameter in named}
        loose = (weight for ref in self._loose if (weight := ref()) is not None)
        for parameter in (*all_parameters(self.optimizers()), *loose):
            if id(parameter) not in known:
                known.add(id(parameter))
                named.append((f"parameter{len(named)}", parameter))
        return named

    def buffers(self) -> Named:
        """Return the models' buffers, each once."""
        return [
            (prefix + _plain(name), buffer)
            for prefix, model in self.prefixes()
            for name, buffer in self._buffers_of(model)
        ]

    def device(self) -> str | None:
        """Return the device of the first parameter, or None if there is none."""
        places = (parameter.device for _, parameter in self.parameters())
        return next((device_text(place) for place in places if place.type != "meta"), None)

    def is_updated_by(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether an optimizer updates any parameter of the known models."""
        known = {id(parameter) for model in self.models() for parameter in model.parameters()}
        return any(id(parameter) in known for parameter in all_parameters([optimizer]))

    def is_complete(self) -> bool:
        """Return whether every parameter that the known optimizers update belongs to a known model."""
        known = {id(parameter) for model in self.models() for parameter in model.parameters()}
        optimizers = self.optimizers()
        return bool(optimizers) and all(id(p) in known for p in all_parameters(optimizers))

    def _parameters_of(self, model: torch.nn.Module) -> Named:
        of_keras = named_variables(model)
        if of_keras is None:
            return self._listings.parameters(model)
        return [(name, variable.value) for name, variable, is_buffer in of_keras if not is_buffer]

    def _buffers_of(self, model: torch.nn.Module) -> Named:
        of_keras = [(name, each.value) for name, each, is_buffer in named_variables(model) or () if is_buffer]
        return [*of_keras, *self._listings.buffers(model)]


def _modules_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    of_keras = named_layers(model)
    return list(model.modules()) if of_keras is None else [layer for _, layer in of_keras]


def _holder_of(models: Sequence[torch.nn.Module]) -> torch.nn.Module | None:
    """Return the smallest module that holds several models, or None."""
    wanted = {id(model) for model in models}
    every = [each for each in instances_of(torch.nn.Module) if "_modules" in vars(each)]
    holders: dict[int, torch.nn.Module] = {id(models[0]): models[0]}
    while holders:
        holders = {id(each): each for each in every if any(id(part) in holders for part in each.children())}
        holding = [each for each in holders.values() if wanted <= {id(part) for part in each.modules()}]
        if holding:
            return min(holding, key=lambda each: len(list(each.modules())))
    return None


def _plain(name: str) -> str:
    return name.replace("_orig_mod.", "")  # torch.compile's wrapper


def all_parameters(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    """Yield the parameters that optimizers update, group by group."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


class _Listings:
    """A model's parameters and buffers by name, listed again only where the model has changed.

    In a memory window they are read several times in a step, and torch's own listing visits every module each time.
    Neither models nor tensors are held.
    """

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[torch.nn.Module, _Listing | None] = weakref.WeakKeyDictionary()

    def parameters(self, model: torch.nn.Module) -> Named:
        """Return what `named_parameters` yields."""
        listing = self._of(model)
        return list(model.named_parameters()) if listing is None else _read(listing.parameters, "_parameters")

    def buffers(self, model: torch.nn.Module) -> Named:
        """Return what `named_buffers` yields."""
        listing = self._of(model)
        return list(model.named_buffers()) if listing is None else _read(listing.buffers, "_buffers")

    def _of(self, model: torch.nn.Module) -> "_Listing | None":
        listing = self._known.get(model)
        if listing is None or not listing.holds():
            listing = self._known[model] = _listing(model)
        return listing


class _Listing:
    """What a model was found to hold, and whether it still does."""

    def __init__(self, model: torch.nn.Module) -> None:
        modules = {name: weakref.ref(module) for name, module in model.named_modules()}
        self._modules = list(modules.values())
        self._contents = self._now()
        self.parameters = _places(modules, (name for name, _ in model.named_parameters()))
        self.buffers = _places(modules, (name for name, _ in model.named_buffers()))

    def holds(self) -> bool:
        """Return whether every module has the same parts, parameters and buffers under the same names."""
        return self._contents is not None and self._now() == self._contents

    def _now(self) -> list[object] | None:
        found: list[object] = []
        for each in self._modules:
            module = each()
            if module is None:
                return None
            inside = module.__dict__
            for part in _PARTS:
                held = inside[part]
                if held:
                    found += held
                    found += map(id, held.values())
            found.append(None)
        return found


def _listing(model: torch.nn.Module) -> _Listing | None:
    """Return a listing of a model, or None if the model or a part of it keeps or lists its tensors its own way."""
    if any(getattr(type(model), name) is not getattr(torch.nn.Module, name) for name in _LISTS):
        return None
    try:
        if all(isinstance(vars(each).get(part), dict) for each in model.modules() for part in _PARTS):
            return _Listing(model)
    except (KeyError, TypeError):
        pass
    return None


def _places(modules: dict[str, weakref.ref[torch.nn.Module]], names: Iterable[str]) -> list[_Place]:
    split = ((name, *name.rpartition(".")[::2]) for name in names)
    return [(name, modules[module], own) for name, module, own in split]


def _read(places: list[_Place], part: str) -> Named:
    return [(name, module.__dict__[part][own]) for name, ref, own in places if (module := ref()) is not None]
