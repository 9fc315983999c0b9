"""Resources of a run: its devices, the share of their memory, the number of lifetimes at once; and
the smaller attempts when memory is short.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import jax

from jbrl.base.errors import JbrlError, bytes_text, shown
from jbrl.play import batching
from jbrl.play.machine import memory_bytes
from jbrl.play.timing import Turns

LEAST_BARE = 2**20  # bytes; a smaller number in a text lacks its unit
SHARE = 0.8  # of the memory there is, by default
UNITS = {"": 1, "B": 1} | {
    f"{letter}{binary}B": base**power
    for binary, base in (("", 1000), ("I", 1024))
    for power, letter in enumerate("KMGT", 1)
}


@dataclass(frozen=True)
class Resources:
    """Resources that a run may use.

    Without arguments: all devices of JAX, most of the memory, stacks where they help.

    Attributes:
      memory: bytes, of each accelerator, or of the whole machine when the devices are CPU cores; 0:
        unknown, no bound.
      stack: play units several at once; None: on accelerators, and on CPUs where most cores would
        have nothing to do.
      turns: times the brief calls of all units.
    """

    devices: list[jax.Device] = field(default_factory=jax.devices)
    memory: int = -1
    stack: bool | None = None
    turns: Turns = field(default_factory=Turns, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.memory < 0:
            object.__setattr__(self, "memory", _default_memory(self.devices[0]))

    @property
    def on_cpu(self) -> bool:
        return self.devices[0].platform == "cpu"

    def fits(self, needed: int, n_devices: int) -> bool:
        """Return whether a program of `needed` bytes on each of `n_devices` devices fits."""
        return not self.memory or needed * (n_devices if self.on_cpu else 1) <= self.memory

    def smaller(
        self, needed: int, width: int, devices: list[jax.Device], name: str
    ) -> tuple[int, list[jax.Device]] | None:
        """Return lanes on each device, and devices, for a program that takes too much; None when it
        fits.

        On CPUs, where all devices share the memory and the width is fixed, fewer devices; on
        accelerators, fewer lanes.

        Args:
          needed: bytes on each device, at `width` lanes.
          name: of the agent, for the message.

        Raises:
          JbrlError: it cannot be made to fit.
        """
        if self.fits(needed, len(devices)):
            return None
        lanes, count = (
            (width, self.memory // needed)
            if self.on_cpu
            else (power_below(width * self.memory // needed), len(devices))
        )
        if not lanes or not count:
            raise JbrlError(
                f"{name} takes {bytes_text(needed)} for "
                f"{width} lifetime{'s' if width > 1 else ''} at once on one device: "
                f"expected at most {bytes_text(self.memory)}, the memory that may be used "
                "(--memory)"
            )
        return lanes, devices[:count]


@dataclass(frozen=True)
class Capacity:
    """Resources that a unit of work uses."""

    resources: Resources
    lanes: int  # MDPs at once on each device

    @property
    def max_lanes(self) -> int | None:
        """MDPs at once on each device, where that may be chosen."""
        return None if self.resources.on_cpu else self.lanes

    @property
    def call(self) -> int:
        """MDPs that one compiled call plays."""
        return self.lanes * len(self.resources.devices)

    def taken(self, batch: int, devices: list[jax.Device]) -> "Capacity":
        """Return the capacity that a program which plays `batch` MDPs on `devices` uses: less,
        where the limit was not reached.

        0: there was none.
        """
        if not batch:
            return self
        return replace(
            self, resources=replace(self.resources, devices=devices), lanes=batch // len(devices)
        )

    def smaller(self) -> "Capacity | None":
        """Return the next capacity to try, half as much in a call; None after the last.

        On CPUs a call is made smaller by using fewer devices, never by fewer lanes, which might
        round differently.
        """
        if not self.resources.on_cpu:
            return replace(self, lanes=self.lanes // 2) if self.lanes > 1 else None
        half = self.resources.devices[: len(self.resources.devices) // 2]
        return replace(self, resources=replace(self.resources, devices=half)) if half else None

    def __str__(self) -> str:
        """Describe the capacity, for messages."""
        count = len(self.resources.devices)
        return f"{self.call} lifetimes at once on {count} device{'s' if count > 1 else ''}"


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports insufficient memory: Python's own, or that of a device."""
    return isinstance(error, MemoryError) or (
        isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    )


def power_below(number: int) -> int:
    """Return the greatest power of two that is not above `number`; 0 below 1."""
    return 1 << number.bit_length() - 1 if number else 0


def choose(
    devices: str | int | Sequence[int] | None = None,
    memory: str | int | None = None,
    stack: bool | None = None,
) -> Resources:
    """Make JAX use the devices that are asked for.

    Args:
      devices: how many (`2`, `"2"`), or, of accelerators, which ones (`[0, 2]`, `"0,2"`);
        None: all.
      memory: `"8GiB"`, `"500MB"` or a number of bytes; None: 80 % of what there is.
      stack: see `Resources`.

    Raises:
      JbrlError: no such devices, or not an amount of memory.
    """
    numbers = _numbers(devices)
    amount = None if memory is None else parse_memory(memory)
    batching.use_all_cores()  # all, so that the process may use more of them another time
    return Resources(_chosen(numbers, devices), -1 if amount is None else amount, stack)


def check(
    devices: str | int | Sequence[int] | None = None, memory: str | int | None = None
) -> None:
    """Raise `JbrlError` unless these could be given to `choose` on some machine."""
    _numbers(devices)
    if memory is not None:
        parse_memory(memory)


def parse_memory(text: str | int) -> int:
    """Parse the bytes in `text`, for example `8GiB`, `500 MB` or `1e9`.

    Raises:
      JbrlError: it is no amount of memory, or a text without a unit that comes to less than 1 MiB.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE]\d{1,2})?)\s*([A-Za-z]*)\s*", str(text))
    amount = (
        int(float(found[1]) * UNITS[found[2].upper()]) if found and found[2].upper() in UNITS else 0
    )
    bare = isinstance(text, str) and found is not None and not found[2]
    if amount < (LEAST_BARE if bare else 1):
        raise JbrlError(
            f"--memory '{shown(text, str)}': expected a number of bytes above 0 with a unit, for "
            "example 8GiB or 500MB"
        )
    return amount


def _numbers(devices: str | int | Sequence[int] | None) -> int | list[int] | None:
    """Return the number of devices, or the numbers of the chosen ones."""
    if devices is None:
        return None
    text = str(devices) if isinstance(devices, str | int) else ",".join(map(str, devices)) + ","
    parts = [part.strip() for part in text.split(",")]
    listed = parts[:-1] if parts[-1] == "" and len(parts) > 1 else parts
    wanted = [int(part) for part in listed if part.isdecimal()]
    counted = len(parts) == 1
    if len(wanted) < len(listed) or len(set(wanted)) < len(wanted) or (counted and wanted == [0]):
        raise JbrlError(
            f"--devices '{text}': expected how many, from 1, or which ones, each once: 2, or 0,2"
        )
    return wanted[0] if counted else wanted


def _chosen(wanted: int | list[int] | None, given: object) -> list[jax.Device]:
    present = jax.devices()
    kind = (
        "CPU cores" if present[0].platform == "cpu" else f"devices of kind {present[0].device_kind}"
    )
    if wanted is None:
        return present
    if isinstance(wanted, int):
        if wanted > len(present):
            raise JbrlError(
                f"--devices {given}: there are {len(present)} {kind} here: expected 1 to "
                f"{len(present)}"
            )
        return present[:wanted]
    if present[0].platform == "cpu":
        raise JbrlError(
            f"--devices '{given}': CPU cores are all alike: expected how many, from 1 to "
            f"{len(present)}"
        )
    if max(wanted) >= len(present):
        raise JbrlError(
            f"--devices '{given}': there are {len(present)} {kind} here: expected numbers from 0 "
            f"to {len(present) - 1}"
        )
    return [present[number] for number in wanted]


def _default_memory(device: jax.Device) -> int:
    """Return the memory that may be used by default: of an accelerator, or of the machine."""
    if device.platform == "cpu":
        return int(memory_bytes() * SHARE)
    return int((device.memory_stats() or {}).get("bytes_limit", 0) * SHARE)
