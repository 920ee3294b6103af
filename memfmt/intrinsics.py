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

LANES = 32
"""Numbers that :func:`equal_u16` compares at once: a cache line of them."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function without the GIL, and keep the machine code where that is possible."""
    try:
        return nb.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # numba found no folder it may write to: a read-only home beside a read-only install.
        return nb.njit(nogil=True)(function)


def _loader(kind: Any, stored: Any, *, constant: bool = False) -> Any:
    """Make a function that reads element `i` of an array from the array's address.

    What is constant is read once before a loop, where LLVM would otherwise read it again after
    each write, to whatever array.
    """

    @intrinsic
    def load(typing_context, address, i):
        def generate(context, builder, signature, arguments):
            pointer = builder.inttoptr(arguments[0], stored.as_pointer())
            value = builder.load(builder.gep(pointer, [arguments[1]]))
            if constant:
                value.set_metadata("invariant.load", builder.module.add_metadata([]))
            return value

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
def equal_u16(typing_context, address, value):
    """Compare the `LANES` u16 at an address of 64 bytes' alignment; one bit for each."""

    def generate(context, builder, signature, arguments):
        base, wanted = arguments
        lanes = ir.VectorType(ir.IntType(16), LANES)
        stored = builder.load(builder.inttoptr(base, lanes.as_pointer()), align=2 * LANES)
        place = ir.IntType(32)
        zeros = ir.Constant(ir.VectorType(place, LANES), [0] * LANES)
        single = builder.insert_element(ir.Constant(lanes, ir.Undefined), wanted, place(0))
        equal = builder.icmp_unsigned("==", stored, builder.shuffle_vector(single, single, zeros))
        return builder.zext(builder.bitcast(equal, ir.IntType(LANES)), ir.IntType(64))

    return types.int64(types.int64, types.uint16), generate


@intrinsic
def high_product(typing_context, a, b):
    """Upper 64 bits of the product of two u64."""

    def generate(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(factor, wide) for factor in arguments))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def lowest_bit(typing_context, bits):
    """Place of the lowest bit that is set; one must be."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def highest_bit(typing_context, bits):
    """Place of the highest bit that is set; one must be."""

    def generate(context, builder, signature, arguments):
        zeros = builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))
        return builder.sub(ir.IntType(64)(63), zeros)

    return types.int64(types.int64), generate


@intrinsic
def load_f16(typing_context, address, i):
    """Read element `i` of an array of half precision as a number of single precision.

    By integers, since LLVM calls a function that nobody gives it where the processor lacks
    the instruction; it uses that of several lanes at once otherwise.
    """

    def generate(context, builder, signature, arguments):
        half, word, single = ir.IntType(16), ir.IntType(32), ir.FloatType()
        pointer = builder.inttoptr(arguments[0], half.as_pointer())
        bits = builder.zext(builder.load(builder.gep(pointer, [arguments[1]])), word)
        sign = builder.shl(builder.and_(bits, word(0x8000)), word(16))
        rest = builder.and_(bits, word(0x7FFF))
        # The exponent's offset is 127 instead of 15; it is twice as far for infinity.
        shift = word((127 - 15) << 23)
        normal = builder.add(builder.shl(rest, word(13)), shift)
        special = builder.icmp_unsigned(">=", rest, word(0x7C00))
        normal = builder.select(special, builder.add(normal, shift), normal)
        tiny = builder.fmul(builder.sitofp(rest, single), single(2.0**-24))
        is_tiny = builder.icmp_unsigned("<", rest, word(0x400))
        value = builder.select(is_tiny, builder.bitcast(tiny, word), normal)
        return builder.bitcast(builder.or_(value, sign), single)

    return types.float32(types.int64, types.int64), generate


@intrinsic
def copy_bytes(typing_context, target, source, count):
    """Copy bytes from address to address; the two ranges must not overlap."""

    def generate(context, builder, signature, arguments):
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


load_i8 = _loader(types.int8, ir.IntType(8))
load_u8 = _loader(types.uint8, ir.IntType(8))
load_u16 = _loader(types.uint16, ir.IntType(16))
load_u32 = _loader(types.uint32, ir.IntType(32))
load_i64 = _loader(types.int64, ir.IntType(64))
load_constant = _loader(types.int64, ir.IntType(64), constant=True)
load_f32 = _loader(types.float32, ir.FloatType())
