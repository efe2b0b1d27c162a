"""Kernels in several threads: those that torch's own operations run in.

torch keeps a pool of OpenMP threads, which spin for a while after every matrix product, ready for the next. A pool of
numba's beside it would fight with them for the processors. So kernels are started as a C compiler would start a
parallel loop: by a call of `GOMP_parallel` in the very library that torch uses, which is GNU's OpenMP or has the same
entry points. Where it has not (torch for macOS and Windows), kernels run in the calling thread.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

cgutils: Any = untyped_cgutils

#: entry points of the library; compiled code knows them under these names after `mlap_`
ENTRIES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
#: fewer numbers than this are not worth waking a thread for
WORTH = 20_000


def _find_entries() -> bool:
    """Tell the compiler where the entry points are; whether there are any."""
    try:
        # torch has loaded it already: this also finds what it was loaded with
        library: Any = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        entries = [getattr(library, name) for name in ENTRIES]
        found = True
    except (OSError, AttributeError):
        entries = [ctypes.pythonapi.Py_IsInitialized] * len(ENTRIES)  # any address will do: it is never called
        found = False
    for name, entry in zip(ENTRIES, entries, strict=True):
        binding.add_symbol(f"mlap_{name}", ctypes.cast(entry, ctypes.c_void_p).value)
    return found


AVAILABLE = _find_entries()


def threads_for(numbers: int) -> int:
    """How many threads a kernel that reads so many numbers should use."""
    return torch.get_num_threads() if AVAILABLE and numbers >= WORTH else 1


def _fork(typing: Any, body: Any, count: Any, threads: Any, arguments: Any) -> Any:
    """`body(part, first, last, *arguments)` in each of some threads, for its part of `range(count)`.

    To be called in compiled code. `body` is compiled code, too, which returns nothing and raises nothing; parts are
    numbered from 0 and there are at most `threads`.
    """
    call = body.get_call_type(typing, (types.intp, types.intp, types.intp, *arguments.types), {})

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, count, threads, packed = values
        compiled = body.dispatcher.get_compile_result(call)
        context.active_code_library.add_linking_library(compiled.library)
        function = context.declare_function(builder.module, compiled.fndesc)
        nothing, pointer, short, long = ir.VoidType(), ir.IntType(8).as_pointer(), ir.IntType(32), count.type
        number = ir.FunctionType(short, [])

        def entry(name: str, kind: Any) -> Any:
            return cgutils.get_or_insert_function(builder.module, kind, f"mlap_{name}")

        def call_body(where: Any, part: Any, first: Any, last: Any, packed: Any) -> None:
            unpacked = cgutils.unpack_tuple(where, packed, len(arguments.types))
            context.call_conv.call_function(
                where, function, call.return_type, call.args, [part, first, last, *unpacked]
            )

        # what every thread does: void task(void *shared)
        kind = ir.FunctionType(nothing, [pointer])
        task = ir.Function(builder.module, kind, builder.module.get_unique_name("task"))
        task.linkage = "internal"
        inside = ir.IRBuilder(task.append_basic_block())
        shared_type = ir.LiteralStructType([long, packed.type])
        shared = inside.load(inside.bitcast(task.args[0], shared_type.as_pointer()))
        total = inside.extract_value(shared, 0)
        part = inside.sext(inside.call(entry("omp_get_thread_num", number), []), long)
        parts = inside.sext(inside.call(entry("omp_get_num_threads", number), []), long)
        first = inside.sdiv(inside.mul(total, part), parts)
        last = inside.sdiv(inside.mul(total, inside.add(part, long(1))), parts)
        call_body(inside, part, first, last, inside.extract_value(shared, 1))
        inside.ret_void()

        # what the caller does
        with builder.if_else(builder.icmp_signed("<=", threads, long(1))) as (alone, together):
            with alone:
                call_body(builder, long(0), long(0), count, packed)
            with together:
                data = cgutils.alloca_once(builder, shared_type)
                builder.store(cgutils.make_anonymous_struct(builder, [count, packed], shared_type), data)
                run = entry("GOMP_parallel", ir.FunctionType(nothing, [kind.as_pointer(), pointer, short, short]))
                builder.call(run, [task, builder.bitcast(data, pointer), builder.trunc(threads, short), short(0)])
        return context.get_dummy_value()

    return types.void(body, types.intp, types.intp, arguments), generate


fork: Any = intrinsic(_fork)
