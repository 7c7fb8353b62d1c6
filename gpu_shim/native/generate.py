"""Generates C: a trampoline for every name of a driver library.

A trampoline jumps to the driver's function with all registers as the caller left them, so it needs
no knowledge of arguments. Names that a source file defines by `HOOK(name)`, or by a macro such as
`LAUNCH_KERNEL(name, ...)`, have no trampoline.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

_HOOK = re.compile(r"^(?:HOOK|(?:HOOK|LAUNCH|COPY|FILL)_[A-Z]+)\((\w+)[,)]", re.MULTILINE)

_HEAD = """\
/* Made by gpu_shim/native/generate.py from {names}; not to be edited. */
#include "driver.h"
"""

#: The arguments are unknown, so all registers that can hold one are kept.
_TRAMPOLINES = """\
#if defined(__x86_64__)
__asm__(
    ".text\\n"
    ".hidden driver_first_call\\n.type driver_first_call,@function\\n"
    "driver_first_call:\\n"
    "  push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9; push %rax; push %r10\\n"
    "  sub $136, %rsp\\n"
    "  movups %xmm0, (%rsp); movups %xmm1, 16(%rsp); movups %xmm2, 32(%rsp)\\n"
    "  movups %xmm3, 48(%rsp); movups %xmm4, 64(%rsp); movups %xmm5, 80(%rsp)\\n"
    "  movups %xmm6, 96(%rsp); movups %xmm7, 112(%rsp)\\n"
    "  mov %r11d, %edi\\n"
    "  call driver_function@PLT\\n"
    "  mov %rax, %r11\\n"
    "  movups (%rsp), %xmm0; movups 16(%rsp), %xmm1; movups 32(%rsp), %xmm2\\n"
    "  movups 48(%rsp), %xmm3; movups 64(%rsp), %xmm4; movups 80(%rsp), %xmm5\\n"
    "  movups 96(%rsp), %xmm6; movups 112(%rsp), %xmm7\\n"
    "  add $136, %rsp\\n"
    "  pop %r10; pop %rax; pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\\n"
    "  jmp *%r11\\n"
    ".macro trampoline name index\\n"
    "  .globl \\\\name\\n  .type \\\\name,@function\\n"
    "\\\\name:\\n"
    "  mov driver_functions+8*\\\\index(%rip), %r11\\n"
    "  test %r11, %r11\\n"
    "  jz 1f\\n"
    "  jmp *%r11\\n"
    "1: mov $\\\\index, %r11d\\n"
    "  jmp driver_first_call\\n"
    ".endm\\n"
);
#elif defined(__aarch64__)
__asm__(
    ".text\\n"
    ".hidden driver_first_call\\n.type driver_first_call,%function\\n"
    "driver_first_call:\\n"
    "  stp x29, x30, [sp, #-224]!\\n"
    "  stp x0, x1, [sp, #16]; stp x2, x3, [sp, #32]; stp x4, x5, [sp, #48]\\n"
    "  stp x6, x7, [sp, #64]; str x8, [sp, #80]\\n"
    "  stp q0, q1, [sp, #96]; stp q2, q3, [sp, #128]\\n"
    "  stp q4, q5, [sp, #160]; stp q6, q7, [sp, #192]\\n"
    "  mov w0, w17\\n"
    "  bl driver_function\\n"
    "  mov x16, x0\\n"
    "  ldp q0, q1, [sp, #96]; ldp q2, q3, [sp, #128]\\n"
    "  ldp q4, q5, [sp, #160]; ldp q6, q7, [sp, #192]\\n"
    "  ldp x0, x1, [sp, #16]; ldp x2, x3, [sp, #32]; ldp x4, x5, [sp, #48]\\n"
    "  ldp x6, x7, [sp, #64]; ldr x8, [sp, #80]\\n"
    "  ldp x29, x30, [sp], #224\\n"
    "  br x16\\n"
    ".macro trampoline name index\\n"
    "  .globl \\\\name\\n  .type \\\\name,%function\\n"
    "\\\\name:\\n"
    "  adrp x16, driver_functions+8*\\\\index\\n"
    "  ldr x16, [x16, :lo12:driver_functions+8*\\\\index]\\n"
    "  cbz x16, 1f\\n"
    "  br x16\\n"
    "1: mov w17, #\\\\index\\n"
    "  b driver_first_call\\n"
    ".endm\\n"
);
#else
#error "trampolines are written for x86-64 and aarch64"
#endif
__asm__(
"""


def hooks_in(sources: Sequence[Path]) -> list[str]:
    """The names that these files define themselves."""
    return [name for path in sources for name in _HOOK.findall(path.read_text("utf-8"))]


def source(names: Sequence[str], hooks: Sequence[str], origin: str) -> str:
    """The C file: the table of names, our function for each, and the trampolines."""
    everything = sorted({*names, *hooks})
    lines = [_HEAD.format(names=origin), _TRAMPOLINES.rstrip("\n")]
    lines += [
        f'    "trampoline {name} {index}\\n"'
        for index, name in enumerate(everything)
        if name not in hooks
    ]
    lines += [");", ""]
    lines += [f"extern void {name}(void);" for name in everything]
    lines += ["", f"void *driver_functions[{len(everything)}];"]
    lines += [f"const int driver_n_names = {len(everything)};", ""]
    lines += ["const struct driver_name driver_names[] = {"]
    lines += [f'    {{"{name}", {name}, {int(name in hooks)}}},' for name in everything]
    return "\n".join([*lines, "};", ""])


def header(names: Sequence[str], hooks: Sequence[str]) -> str:
    """The header: the index of every name."""
    indices = enumerate(sorted({*names, *hooks}))
    lines = [f"#define IX_{name} {index}" for index, name in indices]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str]) -> None:
    """`generate.py NAMES OUT_C OUT_H SOURCE...`"""
    listed, out_c, out_h, *files = map(Path, arguments)
    names, hooks = listed.read_text("utf-8").split(), hooks_in(files)
    out_c.write_text(source(names, hooks, listed.name), "utf-8")
    out_h.write_text(header(names, hooks), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
