"""A program as the text of a C file."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from thinrnn.c.kernels import HELPERS, LIBM, used_by
from thinrnn.c.operations import number
from thinrnn.c.program import Buffer, Operand, Program

LINE = 96  # characters of a line of numbers

HEADER = """\
/* {about}

   One step at a time, without a library and without allocating memory:

       float state[{upper}_STATE], {declared};
       {name}_reset(state);
       {name}_step(state, {names});   for each step

   Weights take {flash:,} bytes, the state {state:,} bytes, and a step {work:,} bytes of stack.
   In another file, define {upper}_HEADER and include this one: it then only declares.
*/
#ifndef {upper}_DECLARED
#define {upper}_DECLARED
#include <stdint.h>

{sizes}
void {name}_reset(float *state);
void {name}_step(float *state, {arguments});
#endif

#ifndef {upper}_HEADER
#include <string.h>
"""


def write(program: Program, name: str, about: str, *, int8: bool) -> str:
    """Return the text of a file whose functions begin with `name`."""
    places, room = program.placed()
    offsets = _offsets(program.states)
    body = [
        "    " + statement.code.format(*(_pointer(o, places, offsets) for o in statement.operands))
        for statement in program.statements
    ]
    code = "\n".join(body)
    arguments = [f"const {one.type} *{one.name}" for one in program.inputs]
    arguments += [f"float *{one.name}" for one in program.outputs]
    sizes = [("STATE", max(1, sum(one.size for one in program.states)), "")]
    sizes += [(one.name.upper(), one.size, "") for one in (*program.inputs, *program.outputs)]
    text = HEADER.format(
        about=about,
        name=name,
        upper=name.upper(),
        declared=", ".join(
            f"{one.name}[{name.upper()}_{one.name.upper()}]"
            for one in (*program.inputs, *program.outputs)
            if one.type == "float"
        ),
        names=", ".join(one.name for one in (*program.inputs, *program.outputs)),
        flash=flash(program, int8=int8),
        state=4 * sum(one.size for one in program.states),
        work=4 * room,
        sizes="\n".join(f"#define {name.upper()}_{what} {size}" for what, size, _ in sizes),
        arguments=", ".join(arguments),
    )
    helpers = used_by(code)
    texts = [HELPERS[helper] for helper in helpers]
    if LIBM.search("".join([code, *texts])):
        text += "#include <math.h> /* link with -lm */\n"
    text += f"\ntypedef {'int8_t' if int8 else 'float'} weight;\n"
    text += "".join(_arrays(program, int8=int8))
    text += "".join(texts)
    text += f"\nvoid {name}_reset(float *state)\n{{\n"
    text += f"    memset(state, 0, {name.upper()}_STATE * sizeof(float));\n}}\n"
    text += f"\nvoid {name}_step(float *state, {', '.join(arguments)})\n{{\n"
    if room:
        text += f"    float work[{room}];\n"
    if "(i = 0;" in code:
        text += "    int i;\n"
    if not program.states:
        text += "    (void)state;\n"
    for state in program.states:
        text += f"    /* state[{offsets[state]}]: {state.name}, {state.size} floats */\n"
    return f"{text}{code}\n}}\n#endif\n"


def flash(program: Program, *, int8: bool) -> int:
    """Return the bytes of all weights and constants."""
    constants = sum(4 * values.numel() for values in program.constants.values())
    each = [matrix.values.numel() for matrix in program.matrices.values()]
    rows = sum(len(matrix.rows) for matrix in program.matrices.values())
    return constants + (sum(each) + 4 * rows if int8 else 4 * sum(each))


def in_8_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole numbers from -127 to 127, and the scale of each row.

    There is no zero point, as in the integer LSTM of CMSIS-NN.
    """
    scale = matrix.abs().amax(1) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return (matrix / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def _arrays(program: Program, *, int8: bool) -> Iterator[str]:
    for name, matrix in program.matrices.items():
        if not int8:
            yield f"\nstatic const float {name}[] = {{\n{_numbers(matrix.rows.t())}}};\n"
            yield f"#define {name}_scale 0\n"
            continue
        values, scale = in_8_bits(matrix.rows)
        yield f"\nstatic const int8_t {name}[] = {{\n{_numbers(values.t())}}};\n"
        yield f"static const float {name}_scale[] = {{\n{_numbers(scale)}}};\n"
    for name, values in program.constants.items():
        yield f"\nstatic const float {name}[] = {{\n{_numbers(values)}}};\n"


def _numbers(values: Tensor) -> str:
    """Return the lines of an array; 9 digits are exact in float32."""
    flat = values.flatten().tolist()
    texts = [f"{value if values.dtype == torch.int8 else number(value)}," for value in flat]
    lines, line = [], ""
    for text in texts:
        if len(line) + len(text) > LINE:
            lines.append(line)
            line = ""
        line += text
    return "\n".join([*lines, line]) + "\n"


def _offsets(states: list[Buffer]) -> dict[Buffer, int]:
    offsets, at = {}, 0
    for state in states:
        offsets[state] = at
        at += state.size
    return offsets


def _pointer(operand: Operand, places: Mapping[Buffer, int], states: Mapping[Buffer, int]) -> str:
    buffer, offset = operand.buffer, operand.offset
    if buffer.kind == "work":
        name, offset = "work", places[buffer] + offset
    elif buffer.kind == "state":
        name, offset = "state", states[buffer] + offset
    else:
        name = buffer.name
    return f"({name} + {offset})" if offset else name
