"""How much is played at once, and what is tried when memory does not suffice for it."""

from dataclasses import dataclass, replace

import jax

from jbrl.runner.play import batching
from jbrl.runner.play.resources import Resources
from jbrl.runner.storage.unit import Unit


@dataclass(frozen=True)
class Capacity:
    """What a unit of work takes up."""

    resources: Resources
    lanes: int  # MDPs at once on each device
    chunk: int | None  # MDPs between two checkpoints; None: as many as one compiled call plays

    @classmethod
    def of(cls, unit: Unit, resources: Resources) -> "Capacity":
        """As much as it may use."""
        return cls(resources, batching.lanes_per_device(unit.agent, unit.protocol.n_mdps, resources.devices), unit.chunk)

    @property
    def most(self) -> int | None:
        """MDPs at once on each device, where that may be chosen."""
        return None if self.resources.on_cpu else self.lanes

    @property
    def call(self) -> int:
        """MDPs that one compiled call plays."""
        return self.lanes * len(self.resources.devices)

    def taken(self, batch: int, devices: list[jax.Device]) -> "Capacity":
        """What a program that plays `batch` MDPs on `devices` has really taken up: less, where not all was allowed. 0: there was none."""
        if not batch:
            return self
        return replace(self, resources=replace(self.resources, devices=devices), lanes=batch // len(devices))

    def smaller(self) -> "Capacity | None":
        """The next to try: chunks of one call, then half as much in a call, and half of that; None when that is all.

        On CPUs a call is made smaller by using fewer devices, never by fewer lanes, which might round differently.
        """
        if self.chunk is not None and self.chunk > self.call:
            return replace(self, chunk=self.call)
        if self.resources.on_cpu:
            devices = self.resources.devices
            half = replace(self, resources=replace(self.resources, devices=devices[: len(devices) // 2]))
        else:
            half = replace(self, lanes=self.lanes // 2)
        return replace(half, chunk=self.chunk and min(self.chunk, half.call)) if half.call else None

    def __str__(self) -> str:
        """In words, for messages."""
        count = len(self.resources.devices)
        return f"{self.call} MDPs at once on {count} device{'s' if count > 1 else ''}"


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory does not suffice: Python's own, or that of a device."""
    return isinstance(error, MemoryError) or (isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error))
