"""The switches of the suite: what people try to make a training faster or smaller, by framework.

A model has those that its `Spec.switches` names for a framework. They are given like a model's own options, and are
kept with them. A switch at its default is not kept: such a run is the plain run.
"""

from collections.abc import Mapping

from tbdprof.errors import UsageError
from tbdprof.suite.workload import SWITCH, Config, Option, Spec

COMPILE = Option("compile", "off", "compile the model with torch.compile", SWITCH)
CHANNELS_LAST = Option("channels_last", "off", "store weights and feature maps with channels last", SWITCH)
FUSED_OPTIMIZER = Option("fused_optimizer", "off", "update all weights in one operator", SWITCH)
HYBRIDIZE = Option(
    "hybridize",
    "dynamic",
    "run layer by layer, as graphs, or as graphs whose memory is planned once",
    ("none", "dynamic", "static"),
)
EAGER = Option("eager", "off", "run operator by operator, without tf.function", SWITCH)
JIT = Option("jit", "off", "compile the training step with XLA", SWITCH)
CHECKPOINTING = Option("checkpointing", "off", "compute feature maps again in the backward pass, not keep them", SWITCH)

OF_FRAMEWORK: Mapping[str, tuple[Option, ...]] = {
    "torch": (COMPILE, CHANNELS_LAST, FUSED_OPTIMIZER, CHECKPOINTING),
    "mxnet": (HYBRIDIZE,),
    "tensorflow": (EAGER, JIT, CHECKPOINTING),
}
ALL: Mapping[str, Option] = {each.name: each for several in OF_FRAMEWORK.values() for each in several}


def of_model(spec: Spec, framework: str) -> tuple[Option, ...]:
    """Return the switches that a model has in a framework."""
    has = spec.switches.get(framework, ())
    return tuple(each for each in OF_FRAMEWORK.get(framework, ()) if each.name in has)


def setting(config: Config, switch: Option) -> str:
    """Return what a switch is set to in a configuration."""
    return str(config.options.get(switch.name, switch.default))


def is_on(config: Config, switch: Option) -> bool:
    """Return whether a switch is on in a configuration."""
    return setting(config, switch) == "on"


def refuse_lacking(spec: Spec, framework: str, name: str) -> None:
    """Raise UsageError if a name is that of a switch that the model lacks in the framework, and name those it has."""
    has = [each.name for each in of_model(spec, framework)]
    if name not in ALL or name in has:
        return
    others = [other for other in OF_FRAMEWORK if name in spec.switches.get(other, ())]
    known = f"it has {', '.join(map(flag, has))}" if has else "it has none"
    there = f"; it has {flag(name)} with --framework {' or '.join(others)}" if others else ""
    raise UsageError(f"{spec.name} in {framework} has no switch {flag(name)}: {known}{there}")


def refuse_together(chosen: Mapping[str, str | int]) -> None:
    """Raise UsageError for switches that exclude each other."""
    if chosen.get(EAGER.name) == "on" and chosen.get(JIT.name) == "on":
        raise UsageError("--eager and --jit exclude each other: choose one")


def flag(name: str) -> str:
    """Return an option's name as it is typed."""
    return "--" + name.replace("_", "-")
