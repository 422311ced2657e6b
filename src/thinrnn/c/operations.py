"""What each function of torch becomes: nothing where it only moves values, else a statement."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from thinrnn._model.tree import map_tensors, tensors_in
from thinrnn.c.program import Operand
from thinrnn.c.record import Recorder

MOVES = (
    *("view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten", "ravel", "contiguous"),
    *("transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "T", "mT"),
    *("__getitem__", "select", "narrow", "index_select", "chunk", "split", "tensor_split"),
    *("unbind", "cat", "concat", "concatenate", "stack", "hstack", "flip", "roll"),
    *("expand", "broadcast_to", "repeat", "repeat_interleave", "tile"),
    *("to", "float", "double", "long", "int", "clone", "detach", "data"),
)
KEEPS_PLACES = ("to", "float", "double", "long", "int", "clone", "contiguous", "detach", "data")
SAME = ("dropout", "dropout1d", "dropout2d", "feature_dropout", "alpha_dropout")
UNARY = {
    "relu": "relu_({x})",
    "sigmoid": "sigmoid_({x})",
    "tanh": "tanh_({x})",
    "exp": "exp_({x})",
    "silu": "{x} * sigmoid_({x})",
    "gelu": "0.5f * {x} * (1.0f + erff({x} * 0.70710678f))",
    "neg": "-{x}",
    "__neg__": "-{x}",
    "abs": "fabsf({x})",
    "sqrt": "sqrtf({x})",
    "square": "{x} * {x}",
    "relu6": "{x} < 0.0f ? 0.0f : {x} > 6.0f ? 6.0f : {x}",
}
BINARY = {"add": "+", "sub": "-", "mul": "*", "multiply": "*", "div": "/", "true_divide": "/"}
BINARY |= {f"__{name}__": BINARY[name] for name in ("add", "sub", "mul")} | {"__truediv__": "/"}
REVERSED = {"__radd__": "+", "__rmul__": "*", "__rsub__": "-", "rsub": "-", "__rtruediv__": "/"}
IN_PLACE = {f"{name}_": sign for name, sign in BINARY.items() if not name.startswith("__")}
IN_PLACE |= {"__iadd__": "+", "__isub__": "-", "__imul__": "*"}
LIKE = ("new_zeros", "new_ones", "zeros_like", "ones_like", "new_full", "full_like")
READS_VALUES = (
    *("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "numpy", "__array__"),
    *("equal", "allclose", "is_nonzero"),
)


def record(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function and record what it does to the values that depend on the inputs."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":  # a property such as x.shape or x.T
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    if not any(recorder.knows(tensor) for tensor in tensors_in((args, kwargs))):
        return func(*args, **kwargs)
    if name == "__iter__":
        return iter(_move(recorder, name, torch.unbind, args, kwargs))
    if name in MOVES:
        return _move(recorder, name, func, args, kwargs)
    result = func(*args, **kwargs)
    if not isinstance(result, Tensor):
        if name in READS_VALUES or any(True for _ in tensors_in(result)):
            recorder.refuse(f"calls {name}")
        return result
    if name in LIKE:
        return result
    if name in SAME:
        return recorder.put(result, recorder.addresses(args[0]))
    if kwargs.get("approximate", "none") != "none":
        recorder.refuse(f"calls {name} with {kwargs['approximate']}")
    if name in UNARY or name.removesuffix("_") in UNARY:
        return _unary(recorder, result, args[0], UNARY[name if name in UNARY else name[:-1]])
    operators = BINARY | IN_PLACE | REVERSED
    if name in operators and not kwargs:
        operands = args[::-1] if name in REVERSED else args
        return _binary(recorder, result, operators[name], *operands[:2])
    if name in SPECIAL:
        return SPECIAL[name](recorder, result, *args, **kwargs)
    recorder.refuse(f"calls {name}")


def _move(recorder: Recorder, name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """Move the addresses in the same way as the values."""
    result = func(*args, **kwargs)
    if not any(True for _ in tensors_in(result)):
        return result
    first = args[0] if isinstance(args[0], Tensor) else next(tensors_in(args))
    index = {id(tensor) for tensor in tensors_in((args[1:], kwargs))}
    if any(recorder.knows(t) for t in tensors_in((args[1:], kwargs))):
        recorder.refuse(f"calls {name} with indices that depend on the input")
    if name in KEEPS_PLACES:
        if first.is_floating_point() != result.is_floating_point():
            recorder.refuse("turns whole numbers into fractions or back")
        return recorder.put(result, recorder.addresses(first))
    moved = func(
        *map_tensors(args, lambda t: t if id(t) in index else recorder.addresses(t)), **kwargs
    )
    for tensor, where in zip(tensors_in(result), tensors_in(moved), strict=True):
        recorder.put(tensor, where)
    return result


def _unary(recorder: Recorder, result: Tensor, x: Tensor, code: str) -> Tensor:
    _must_be_fractions(recorder, x)
    given = recorder.vector(x)
    out = recorder.work(given.size)
    say_each(recorder, code.format(x="{1}[i]"), out, given)
    return recorder.put(result, out.buffer)


def _binary(recorder: Recorder, result: Tensor, sign: str, *operands: Any) -> Tensor:
    texts, reads = [], []
    for operand in operands:
        if isinstance(operand, Tensor) and (recorder.knows(operand) or operand.numel() > 1):
            _must_be_fractions(recorder, operand)
            where = recorder.addresses(operand)
            is_one = where.numel() == 1
            reads.append(recorder.at(where if is_one else where.expand(result.shape)))
            texts.append(f"{{{len(reads)}}}[{'0' if is_one else 'i'}]")
        else:
            texts.append(number(float(operand)))
    out = recorder.work(result.numel())
    say_each(recorder, f" {sign} ".join(texts), out, *reads)
    return recorder.put(result, out.buffer)


def say_each(recorder: Recorder, code: str, out: Operand, *reads: Operand) -> None:
    """Add a statement that computes each value of `out` on its own."""
    loop = f"for (i = 0; i < {out.size}; i++) {{0}}[i] = {code};"
    recorder.say(loop, [out], reads)


def number(value: float) -> str:
    """Return a float of C."""
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _must_be_fractions(recorder: Recorder, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        recorder.refuse("computes with whole numbers")


def _linear(recorder: Recorder, result: Tensor, x: Tensor, weight: Tensor, bias: Any = None) -> Any:
    matrix = recorder.matrix(weight)
    rows, columns = weight.shape
    return recorder.put(result, recorder.linear(x, matrix, bias, (rows, columns)))


def _matmul(recorder: Recorder, result: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    if weight.dim() != 2 or not recorder.knows(x):
        recorder.refuse("multiplies by something that is not a matrix of weights")
    matrix = recorder.matrix(weight, rows_first=False)
    columns, rows = weight.shape
    return recorder.put(result, recorder.linear(x, matrix, None, (rows, columns)))


def _embedding(
    recorder: Recorder, result: Tensor, tokens: Tensor, table: Tensor, *rest: Any, **options: Any
) -> Tensor:
    if options.get("max_norm") is not None or (len(rest) > 1 and rest[1] is not None):
        recorder.refuse("looks up vectors and limits their norm")
    matrix = recorder.matrix(table)
    rows, columns = table.shape
    found = recorder.work(result.numel())
    for at, place in enumerate(recorder.addresses(tokens).flatten()):
        out = Operand(found.buffer, at * columns, columns)
        code = f"lookup({{0}}, *{{1}}, {matrix}, {rows}, {columns});"
        recorder.say(code, [out], [recorder.at(place)])
    return recorder.put(result, found.buffer)


def _conv1d(
    recorder: Recorder,
    result: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if groups != 1 or isinstance(padding, str) or x.numel() != x.shape[-2] * x.shape[-1]:
        recorder.refuse("convolves in groups, a padding by name, or several sequences")
    one = [value if isinstance(value, int) else value[0] for value in (stride, padding, dilation)]
    matrix = recorder.matrix(weight.flatten(1))  # (rows, channels * taps)
    rows, channels, taps = weight.shape
    sizes = (rows, channels, x.shape[-1], taps, *one, result.shape[-1])
    out = recorder.work(result.numel())
    code = f"conv1d({{0}}, {{1}}, {matrix}, {recorder.array(bias)}, {', '.join(map(str, sizes))});"
    recorder.say(code, [out], [recorder.vector(x)])
    return recorder.put(result, out.buffer)


def _over_last(name: str) -> Callable[..., Tensor]:
    def write(recorder: Recorder, result: Tensor, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        dim: Any = options.get("dim", rest[0] if rest else None)
        if dim is None or (dim % x.dim() != x.dim() - 1 and x.numel() != x.shape[dim]):
            recorder.refuse(f"calls {name} over another dimension than the last")
        return _by_row(recorder, result, x, result.shape[dim], f"{name}({{0}}, {{1}}, {{n}});")

    return write


def _layer_norm(
    recorder: Recorder,
    result: Tensor,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    if len(shape) != 1:
        recorder.refuse("normalizes over several dimensions")
    gain, offset = recorder.array(weight), recorder.array(bias)
    code = f"layer_norm({{0}}, {{1}}, {gain}, {offset}, {number(eps)}, {{n}});"
    return _by_row(recorder, result, x, shape[0], code)


def _by_row(recorder: Recorder, result: Tensor, x: Tensor, size: int, code: str) -> Tensor:
    found = recorder.work(result.numel())
    for at, place in enumerate(recorder.addresses(x).reshape(-1, size)):
        text = code.replace("{n}", str(size))
        recorder.say(text, [Operand(found.buffer, at * size, size)], [recorder.at(place)])
    return recorder.put(result, found.buffer)


def _batch_norm(
    recorder: Recorder,
    result: Tensor,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    if training or mean is None or x.numel() != len(mean):
        recorder.refuse("normalizes over the batch")
    gain = torch.rsqrt(variance + eps) * (1.0 if weight is None else weight)
    offset = -mean * gain + (0.0 if bias is None else bias)
    reads = [recorder.vector(part) for part in (x, gain, offset)]
    out = recorder.work(x.numel())
    say_each(recorder, "{1}[i] * {2}[i] + {3}[i]", out, *reads)
    return recorder.put(result, out.buffer)


def _below_zero(code: str, name: str, default: float) -> Callable[..., Tensor]:
    """Return what writes a function that is x above 0 and `code`, with one number, below."""

    def write(recorder: Recorder, result: Tensor, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        value = number(options.get(name, rest[0] if rest else default))
        return _unary(recorder, result, x, f"{{x}} > 0.0f ? {{x}} : {value} * {code}")

    return write


def _clamp(
    recorder: Recorder,
    result: Tensor,
    x: Tensor,
    low: float | None = None,
    high: float | None = None,
    *_: Any,
    **options: Any,
) -> Tensor:
    low = options.get("min", options.get("min_val", low))
    high = options.get("max", options.get("max_val", high))
    code = "{x}"
    if low is not None:
        code = f"{{x}} < {number(low)} ? {number(low)} : {code}"
    if high is not None:
        code = f"{{x}} > {number(high)} ? {number(high)} : {code}"
    return _unary(recorder, result, x, code)


SPECIAL: dict[str, Callable[..., Tensor]] = {
    "linear": _linear,
    "matmul": _matmul,
    "__matmul__": _matmul,
    "mm": _matmul,
    "embedding": _embedding,
    "conv1d": _conv1d,
    "softmax": _over_last("softmax"),
    "log_softmax": _over_last("log_softmax"),
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "leaky_relu": _below_zero("{x}", "negative_slope", 0.01),
    "elu": _below_zero("(exp_({x}) - 1.0f)", "alpha", 1.0),
    "hardtanh": _clamp,
    "clamp": _clamp,
}
