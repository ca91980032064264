"""Any causal language model that transformers knows, read off its modules on PyTorch's meta device.

Nothing is allocated and nothing is computed, but the modules are the real ones.  Registration, classes and shapes come
from the module tree; calls, matrix products (PyTorch's ``FlopCounterMode``) and sizes of outputs from one forward of
one sequence.  What is not known is taken by rule:

* a product in a module without weights of its own is attention, half of it executed because of the causal mask;
* a norm moves five arrays of its output's size, any other leaf two;
* backward of a block needs what its leaves return, and what its products read that no leaf returned; what the last leaf
  returns stands for the block's own input.

Needs PyTorch and transformers, which the extra ``zerosim[torch]`` installs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

from simulator.errors import InputError
from simulator.world.model.assembly import Built, rms_arrays
from simulator.world.model.decoder import Block, layers_of, loss, moved, multiplied, normalised
from simulator.world.model.layer import Layer, Tensor, Work
from simulator.world.model.module import Module

__all__ = ["available", "from_transformers", "knows"]


def available() -> bool:
    """Whether PyTorch and transformers are installed."""
    return all(find_spec(name) is not None for name in ("torch", "transformers"))


def knows(model_type: str) -> bool:
    """Whether transformers is installed and has a family of that name."""
    return available() and model_type in import_module("transformers").CONFIG_MAPPING


@dataclass(slots=True)
class _Trace:
    """What one forward of one sequence shows, by names of modules."""

    tokens: int
    calls: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Whom a module calls, in order."""
    flop: dict[str, float] = field(default_factory=dict)
    """Of the products inside of a module and of all that it calls."""
    returned: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Elements."""
    read: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Elements of inputs that no module has returned, and none has read before."""
    flows: set[str] = field(default_factory=set)
    """Modules whose outputs need a gradient."""

    @property
    def head(self) -> str:
        """The module that the model calls last."""
        return self.calls[""][-1]

    def products(self, name: str) -> float:
        """FLOP per token of the products of a module itself."""
        inside = sum(self.flop.get(called, 0.0) for called in set(self.calls[name]))
        return (self.flop.get(name, 0.0) - inside) / self.tokens

    def per_token(self, name: str) -> float:
        """Elements that a module without children returns for a token."""
        return self.returned[name] / self.tokens


def from_transformers(raw: dict[str, Any], path: Path, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers of the model that transformers builds from the config *raw*.

    Raises
    ------
    InputError
        It knows no such causal language model, refuses the config, or cannot run the model on the meta device.
    """
    try:
        model, trace = _traced(raw, sequence_length)
        root = _module(model, "", trace, _tensors(model), element_bytes)
        return root, _layers(root, trace, element_bytes)
    except Exception as error:  # whatever the code of a model raises
        first = str(error).partition("\n")[0]
        reason = f"transformers cannot build it for the meta device: {type(error).__name__}: {first}"
        raise InputError(reason, file=path, key="model_type", value=raw.get("model_type")) from None


def _model(raw: Mapping[str, Any]) -> Any:
    torch, transformers = import_module("torch"), import_module("transformers")
    ignored = {"model_type", "architectures", "auto_map", "quantization_config", "torch_dtype", "dtype"}
    sizes = {key: value for key, value in raw.items() if key not in ignored}
    config = transformers.AutoConfig.for_model(raw["model_type"], **sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return model.train()


def _traced(raw: Mapping[str, Any], tokens: int) -> tuple[Any, _Trace]:
    """Return the model and what one forward shows.

    Some models look into the mask that they make themselves, which has no values here: those get one that is ready.
    """
    torch = import_module("torch")
    numbers = torch.zeros((1, tokens), dtype=torch.long, device="meta")
    ready = torch.zeros((1, 1, tokens, tokens), device="meta")
    try:
        return _forward(_model(raw), tokens, input_ids=numbers)
    except RuntimeError:
        return _forward(_model(raw), tokens, input_ids=numbers, attention_mask=ready)


def _forward(model: Any, tokens: int, **inputs: Any) -> tuple[Any, _Trace]:
    trace = _Trace(tokens=tokens)
    _watch(model, trace)
    with import_module("torch.utils.flop_counter").FlopCounterMode(display=False) as counted:
        model(**inputs, use_cache=False)
    prefix = type(model).__name__
    for name, kinds in counted.get_flop_counts().items():
        trace.flop[name.removeprefix(prefix).removeprefix(".")] = float(sum(kinds.values()))
    return model, trace


def _watch(model: Any, trace: _Trace) -> None:
    """Let the next forward of *model* fill *trace*."""
    stack: list[str] = []
    seen: dict[int, Any] = {}

    def enter(name: str, module: Any, inputs: tuple[Any, ...]) -> None:
        if stack:
            trace.calls[stack[-1]].append(name)
        stack.append(name)
        if not any(module.children()):
            fresh = [item for item in _arrays(inputs) if id(item) not in seen]
            trace.read[name] += sum(item.numel() for item in fresh)
            seen.update((id(item), item) for item in fresh)

    def leave(name: str, module: Any, outputs: Any) -> None:
        stack.pop()
        arrays = list(_arrays(outputs))
        if any(item.requires_grad for item in arrays):
            trace.flows.add(name)
        if not any(module.children()):
            trace.returned[name] += sum(item.numel() for item in arrays)
        # keeps them alive, so that no later array has the same identity
        seen.update((id(item), item) for item in arrays)

    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda module, given, name=name: enter(name, module, given))
        module.register_forward_hook(lambda module, _, given, name=name: leave(name, module, given))


def _arrays(given: Any) -> Iterator[Any]:
    """Floating-point arrays inside of *given*."""
    if hasattr(given, "is_floating_point"):
        if given.is_floating_point():
            yield given
    elif hasattr(given, "values"):
        yield from _arrays(tuple(given.values()))
    elif isinstance(given, tuple | list):
        for item in given:
            yield from _arrays(item)


def _tensors(model: Any) -> dict[int, Tensor]:
    """Parameters by identity, with the name under which they are registered first."""
    return {id(parameter): Tensor(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()}


def _module(real: Any, name: str, trace: _Trace, tensors: Mapping[int, Tensor], width: int) -> Module:
    """Return the module called *name*; an element has *width* bytes."""
    children = tuple(
        _module(child, f"{name}.{key}" if name else key, trace, tensors, width) for key, child in real.named_children()
    )
    below = {item.name: item for child in children for item in child.walk()}
    module = Module(
        name=name,
        kind=type(real).__name__,
        parameters=tuple(tensors[id(item)] for item in real.parameters(recurse=False)),
        children=children,
        calls=tuple(below[called] for called in trace.calls[name]),
        takes_numbers=isinstance(real, import_module("torch").nn.Embedding),
        has_gradient=name in trace.flows,
        normalises="Norm" in type(real).__name__,
    )
    forward, backward = _work(module, trace, width)
    logits = module.parameters[0].shape[0] if name == trace.head else 0
    return replace(module, forward=forward, backward=backward, logits=logits)


def _work(module: Module, trace: _Trace, width: int) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Own work of *module*, per token, forward and backward."""
    weights = sum(tensor.elements for tensor in module.parameters if len(tensor.shape) > 1)
    products, read = trace.products(module.name), float(width * weights)
    if module.name == trace.head:
        later, earlier = loss(module.parameters[0].shape[0], width)
        forward, backward = _matrix(module, products, read, width)
        return forward + later, backward + earlier
    if weights and products:
        return _matrix(module, products, read, width)
    if products and module.children:
        return (Work("attention", flop=products / 2),), (Work("attention", flop=products / 2 * 5 / 2),)
    moves = width * trace.per_token(module.name)
    if not moves or not module.has_gradient or "Dropout" in module.kind:
        return (), ()
    return normalised(module.kind, moves) if module.normalises else moved(2 * moves)


def _matrix(module: Module, flop: float, read: float, width: int) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    shapes = [tensor.shape for tensor in module.parameters if len(tensor.shape) > 1]
    if len(shapes) == 1 and len(shapes[0]) == 2 and flop == 2 * prod(shapes[0]):
        out, into = reversed(shapes[0]) if module.kind == "Conv1D" else shapes[0]
        return multiplied(out, into, width)
    forward = Work("matrix", flop=flop, constant_traffic=read)
    return (forward,), (Work("matrix", flop=2 * flop, constant_traffic=2 * read),)


def _layers(root: Module, trace: _Trace, width: int) -> tuple[Layer, ...]:
    """Return what runs before the blocks, the blocks, and what runs after them."""
    names = {block.name for listed in _lists(root) for block in listed.children}
    steps = list(_steps(root, names))
    places = [place for place, module in enumerate(steps) if module.name in names]
    if not places:
        raise ValueError("it has no list of blocks")
    first, last = steps[: places[0]], steps[places[-1] + 1 :]
    tables = [module.parameters[0] for module in root.walk() if module.takes_numbers]
    hidden, head = max(table.shape[1] for table in tables), last[-1].parameters[0]
    tied = head in tables
    normed = width * hidden * (rms_arrays(width) if any("RMSNorm" in item.kind for item in last) else 2)
    begin = Block(
        name=first[0].name.rpartition(".")[2],
        modules=tuple(first),
        input_bytes=0.0,
        activation_bytes=0.0,
        checkpointed=False,
        looks_up=not tied,
    )
    end = Block(
        name=trace.head,
        modules=tuple(last),
        input_bytes=float(normed),
        activation_bytes=float(normed),
        checkpointed=False,
    )
    inside = steps[places[0] : places[-1] + 1]
    return layers_of((begin, *(_block(module, trace, hidden, width) for module in inside), end))


def _lists(module: Module) -> Iterator[Module]:
    """Outermost lists of modules."""
    for child in module.children:
        if child.kind == "ModuleList":
            yield child
        else:
            yield from _lists(child)


def _steps(module: Module, blocks: set[str]) -> Iterator[Module]:
    """Blocks, and the largest parts of the model around them, in the order of calls."""
    for called in module.calls:
        if called.name in blocks or not any(item.name in blocks for item in called.walk()):
            yield called
        else:
            yield from _steps(called, blocks)


def _block(module: Module, trace: _Trace, hidden: int, width: int) -> Block:
    leaves = [item for item in module.walk() if not item.children and "Dropout" not in item.kind]
    elements = sum(trace.per_token(leaf.name) for leaf in leaves)
    elements += sum(trace.read[leaf.name] / trace.tokens for leaf in leaves if leaf.parameters and not leaf.normalises)
    # an RMS norm keeps more than the input and the output of other norms
    more = rms_arrays(width) - 2
    elements += more * sum(trace.per_token(leaf.name) for leaf in leaves if "RMSNorm" in leaf.kind)
    scores = sum(work.flop for item in module.walk() for work in item.forward if work.kind == "attention")
    return Block(
        name=".".join(module.name.split(".")[-2:]),
        modules=(module,),
        input_bytes=float(width * hidden),
        activation_bytes=float(width * elements),
        attention_flop=6 * scores,
    )
