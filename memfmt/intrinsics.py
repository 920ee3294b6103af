"""What numba lacks: reads at an address, prefetch, comparison of several numbers at once.

An address must belong to memory that somebody keeps alive; nothing is checked here.
"""

# mypy: disable-error-code="no-untyped-def,no-any-return,unreachable"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 8
"""Numbers that :func:`equal_u32` compares at once."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function without the GIL, and keep the machine code where that is possible."""
    try:
        return nb.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # numba found no folder it may write to: a read-only home beside a read-only install.
        return nb.njit(nogil=True)(function)


def _loader(kind: Any, bits: int) -> Any:
    """Make a function that reads element `i` of an array from the array's address."""

    @intrinsic
    def load(typing_context, address, i):
        def generate(context, builder, signature, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            return builder.load(builder.gep(pointer, [arguments[1]]))

        return kind(types.int64, types.int64), generate

    return load


@intrinsic
def prefetch(typing_context, address, i):
    """Ask for the cache line of byte `i` of an array, without waiting for it."""

    def generate(context, builder, signature, arguments):
        flag, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.inttoptr(builder.add(*arguments), byte)
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def equal_u32(typing_context, address, i, value):
    """Compare elements ``i .. i + LANES - 1`` of a u32 array; one bit for each."""

    def generate(context, builder, signature, arguments):
        base, index, wanted = arguments
        lane, lanes = ir.IntType(32), ir.VectorType(ir.IntType(32), LANES)
        first = builder.gep(builder.inttoptr(base, lane.as_pointer()), [index])
        stored = builder.load(builder.bitcast(first, lanes.as_pointer()), align=4)
        single = builder.insert_element(ir.Constant(lanes, ir.Undefined), wanted, lane(0))
        spread = builder.shuffle_vector(single, single, ir.Constant(lanes, [0] * LANES))
        equal = builder.icmp_unsigned("==", stored, spread)
        bits = builder.bitcast(equal, ir.IntType(LANES))
        return builder.zext(bits, ir.IntType(64))

    return types.int64(types.int64, types.int64, types.uint32), generate


@intrinsic
def lowest_bit(typing_context, bits):
    """Place of the lowest bit that is set; one must be."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


load_u8 = _loader(types.uint8, 8)
load_u16 = _loader(types.uint16, 16)
load_u32 = _loader(types.uint32, 32)
load_i64 = _loader(types.int64, 64)
