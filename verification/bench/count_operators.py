"""Count what a training step asks of torch: operators when eager, kernels when compiled.

On a GPU a launch costs some five microseconds whatever it computes, so the number of operators is
a cost that a time on a CPU does not show. Counts are exact and the same on every machine.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from verification.bench.benchmark import Work
from wefpe_core import WefpeError


class CountError(WefpeError, RuntimeError):
    """What cannot be counted exactly; the message names the call that is unknown."""


@dataclass(frozen=True)
class Step:
    """A work in two parts: `backward` takes what `forward` returns."""

    forward: Callable[[], Sequence[Tensor]]
    backward: Callable[[Sequence[Tensor]], None]

    def __call__(self) -> None:
        self.backward(self.forward())


# --- Eager: operators that reach torch's dispatcher -------------------------------------------


@dataclass(frozen=True)
class Operators:
    """How many operators torch dispatched, and how many bytes their new tensors hold."""

    launching: int = 0
    free: int = 0  # views and empty tensors, which launch nothing on a GPU
    new_bytes: int = 0
    names: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def total(self) -> int:
        return self.launching + self.free

    def as_json(self) -> dict[str, Any]:
        numbers = {key: getattr(self, key) for key in ("launching", "free", "total", "new_bytes")}
        return numbers | {"names": dict(self.names)}

    def __add__(self, other: Operators) -> Operators:
        return Operators(
            self.launching + other.launching,
            self.free + other.free,
            self.new_bytes + other.new_bytes,
            self.names + other.names,
        )


# These allocate memory and do not write to it.
_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class OperatorCounter(TorchDispatchMode):
    """Counts every operator dispatched while it is active, also by autograd and inside operators.

    An operator of torch counts as one. An operator that somebody added counts as one too, and so
    does every operator it calls in turn: putting operators into one of them saves no launch.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts = Operators()
        self._made: set[int] = set()  # memory that an operator has made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        known = {_memory(x) for x in given}
        if func.namespace == "aten" or not given:
            result = func(*args, **kwargs)
        else:
            key = torch._C._dispatch_key_for_device(given[0].device.type)
            keys = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[key])
            with OperatorCounter() as inside:
                result = func.redispatch(keys, *args, **kwargs)
            self.counts += inside.counts
            known |= inside._made
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        new = {_memory(x): x.untyped_storage().nbytes() for x in made if _memory(x) not in known}
        self._made |= new.keys()
        is_view = bool(made) and {_memory(x) for x in made} <= {_memory(x) for x in given}
        is_empty = func._schema.name.removeprefix("aten::") in _EMPTY
        is_free = int((is_view and not func._schema.is_mutable) or is_empty)
        self.counts += Operators(
            1 - is_free, is_free, sum(new.values()), Counter([func._schema.name])
        )
        return result


def _memory(tensor: Tensor) -> int:
    """The storage behind a tensor; views of it have the same."""
    return tensor.untyped_storage()._cdata


def count_operators(work: Work) -> Operators:
    """The operators of one run. Run it once before, because a first run may make tables."""
    with OperatorCounter() as counter:
        work()
    return counter.counts


def count_step(step: Step) -> tuple[Operators, Operators]:
    """The operators of one forward and of one backward pass, after a first run of both."""
    step()
    with OperatorCounter() as forward:
        answers = step.forward()
    with OperatorCounter() as backward:
        step.backward(answers)
    return forward.counts, backward.counts


# --- Compiled: calls in the code that Inductor writes -----------------------------------------


@dataclass(frozen=True)
class CompiledCalls:
    """What compiled code calls: kernels it brings along, library routines, plain operators."""

    generated: int = 0
    extern: int = 0
    fallback: int = 0

    @property
    def total(self) -> int:
        return self.generated + self.extern + self.fallback

    def as_json(self) -> dict[str, int]:
        return asdict(self) | {"total": self.total}

    def __add__(self, other: CompiledCalls) -> CompiledCalls:
        mine, others = asdict(self), asdict(other)
        return CompiledCalls(**{kind: mine[kind] + others[kind] for kind in mine})


def count_compiled(step: Step) -> CompiledCalls:
    """Compile the forward pass of a step with its derivative, run it, and count its calls.

    An operator that somebody added counts as one here, whatever it calls in turn.
    The graph must be whole, and its code is written anew: code from a cache would not be seen.
    A step without computation, such as a table that is a parameter, has no code and no calls.
    """
    from torch._inductor.utils import fresh_cache, run_and_get_code

    forward = torch.compile(step.forward, fullgraph=True)
    with fresh_cache():
        _, sources = run_and_get_code(Step(forward, step.backward))
    return sum(map(calls_in, sources), CompiledCalls())


def calls_in(source: str) -> CompiledCalls:
    """The calls that compute in one module written by Inductor, which has no branch or loop."""
    module = ast.parse(source)
    kernels = {
        name.id
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).startswith("async_compile.")
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    kinds = Counter(_kind_of(name, kernels) for name in _called_names(module))
    return CompiledCalls(kinds["generated"], kinds["extern"], kinds["fallback"])


def _called_names(module: ast.Module) -> Iterator[str]:
    """The names of all calls in the functions that run the graph, or parts of it."""
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef) and (
            function.name == "call" or function.name.startswith("partition_")
        ):
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    yield ast.unparse(node.func)


_FREE_CALLS = (
    *("assert_size_stride", "assert_alignment", "reinterpret_tensor", "alloc_from_pool"),
    *("get_raw_stream", "max", "min"),
)
_FREE_STARTS = ("empty_strided", "torch.cuda.", "math.", "self.partitions")
_FREE_METHODS = ("clear", "size", "stride", "storage_offset", "append")
_OPERATORS = "torch.ops."


def _kind_of(name: str, kernels: set[str]) -> str:
    root, _, rest = name.partition(".")
    if root in kernels:
        return "generated"
    if root == "extern_kernels":
        return "extern"
    if name.startswith(_OPERATORS) or root == "aten":
        return "free" if _is_view(name) else "fallback"
    is_free = name in _FREE_CALLS or name.startswith(_FREE_STARTS) or rest in _FREE_METHODS
    if not is_free:
        raise CountError(f"compiled code calls {name}, and it is not known whether that computes")
    return "free"


def _is_view(name: str) -> bool:
    """Whether an operator named as in ``torch.ops.aten.view_as_real.default`` returns a view."""
    path = name.removeprefix(_OPERATORS).split(".")
    found = reduce(getattr, path, torch.ops)
    return bool(getattr(found, "is_view", False))
