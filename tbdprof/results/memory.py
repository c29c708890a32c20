"""Results about memory. The categories are those of the TBD paper (Zhu et al., 2018, arXiv:1803.06905)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.facts.arrays import Ints
from tbdprof.facts.records import Role

CATEGORIES: dict[str, tuple[Role, ...]] = {
    "weights": (Role.WEIGHT, Role.GATHERED, Role.BUFFER, Role.CAST),
    "weight_gradients": (Role.GRADIENT,),
    "feature_maps": (
        Role.FEATURE_MAP,
        Role.GRADIENT_MAP,
        Role.RECOMPUTED,
        Role.INPUT,
        Role.PLANNED,
    ),
    "workspace": (Role.WORKSPACE, Role.TEMPORARY, Role.COMPILED),
    "dynamic": (Role.OPTIMIZER_STATE, Role.COMMUNICATION, Role.DYNAMIC),
    "unknown": (Role.UNKNOWN,),
}


@dataclass(frozen=True, slots=True)
class Holding:
    """A block that was live at the peak. What is not known is None."""

    name: str | None
    role: Role
    layer: str | None
    operator: str | None
    shape: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes of each category after each of some events (the largest of every stretch is among them)."""

    steps: int
    time_ns: Ints
    categories: Mapping[str, Ints]


@dataclass(frozen=True, slots=True)
class OfDevice:
    """What one device holds at the peak of all."""

    device: str
    size_bytes: int
    categories: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the run's device over the steps of the memory windows that count; of several devices, their sum."""

    device: str  # several: "cpu + cpu:1"
    events: int
    steps: int
    allocator_peak_bytes: int  # reported blocks, rounding and workers' scratch, at their own peak
    independent_peak_bytes: int | None  # the framework's own total, at its peak
    roles_at_peak: Mapping[Role, int]
    rounding_at_peak_bytes: int | None
    roles_max: Mapping[Role, int]
    category_max: Mapping[str, int]
    rounding_max_bytes: int | None
    at_optimizer_step: Mapping[Role, int] | None
    top_at_peak: tuple[Holding, ...]
    by_layer: tuple[tuple[str | None, int], ...]
    timeline: Timeline
    violations: tuple[str, ...]
    mismatches: int
    outside_allocator_bytes: int  # owned, but in memory the allocator never gave (numpy's); the most at a time
    by_device: tuple[OfDevice, ...] = ()  # none if there is only one
    outside_allocator_max: Mapping[Role, int] = field(default_factory=dict)  # of that, the most of each role

    @property
    def peak_bytes(self) -> int:
        """Return what the breakdown adds up to: the framework's own total, or without one the allocator's peak."""
        return self.allocator_peak_bytes if self.independent_peak_bytes is None else self.independent_peak_bytes

    def category_at_peak(self, category: str) -> int:
        """Return the bytes of a category at the peak."""
        return sum(self.roles_at_peak[role] for role in CATEGORIES[category])


AGREES = 0.02  # of what is in use


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of the device's memory, and where its size is from."""

    name: str
    size_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The device's memory at the end of the memory window's last step, with the categories of the peak before."""

    device: str
    total_bytes: int | None
    used_bytes: int | None  # as the driver reports it, without what it keeps for itself if that is reported apart
    layers: tuple[Layer, ...]  # from the bottom
    unexplained_bytes: int | None  # what is used beyond the layers
    allocator_cache_bytes: int | None  # reserved and not in use at the peak
    cache_at_end_bytes: int | None  # at the end of the last step, when most is free
    fragments_bytes: int | None  # of that, what cannot be given back: it lies in one piece with memory in use
    private_bytes: int | None  # reserved for captured graphs and other pools of their own
    context_bytes: int | None
    libraries_bytes: int | None
    others_bytes: int | None
    beneath: Layer | None = None  # context and libraries as measured in this process, which loads more code as it runs

    @property
    def explained(self) -> float | None:
        """Return the sum of the layers over the memory in use; None: not reported."""
        return None if not self.used_bytes else sum(layer.size_bytes for layer in self.layers) / self.used_bytes

    @property
    def agrees(self) -> bool | None:
        """Return whether the layers explain all memory in use except for at most 2 %; None: not reported."""
        if not self.used_bytes or self.unexplained_bytes is None:
            return None
        return abs(self.unexplained_bytes) <= AGREES * self.used_bytes


TRIED, ESTIMATED = "tried", "estimated"


@dataclass(frozen=True, slots=True)
class PostMortem:
    """What is known of the end of a run that ended out of memory; None: not known."""

    said: str  # by the allocator
    asked_bytes: int | None
    live: Mapping[str, int] | None  # by category
    others_bytes: int | None  # feature maps and others together
    separated: bool  # all that was live is known by category: the memory window was open
    live_bytes: int | None
    capacity_bytes: int | None  # of the device, as the allocator said
    free_bytes: int | None  # what the device could still give
    cache_bytes: int | None  # reserved by the allocator and not in use
    fragments_bytes: int | None  # of that, what cannot be given back
    batch_size: int | None
    fitting_batch: int | None
    found_by: str | None  # TRIED, or ESTIMATED by proportion from what was live
    peaks: Mapping[int, int]  # what each batch took that was tried and fits
    room_bytes: int | None  # what was there for them

    @property
    def releasable_bytes(self) -> int | None:
        """Return how much of the allocator's cache could be given back to the device."""
        if self.cache_bytes is None or self.fragments_bytes is None:
            return None
        return max(0, self.cache_bytes - self.fragments_bytes)

    @property
    def is_fragmented(self) -> bool:
        """Return whether as much memory as was asked for was free, but in pieces that were too small."""
        return self.asked_bytes is not None and (self.fragments_bytes or 0) >= self.asked_bytes
