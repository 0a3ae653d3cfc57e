"""Confines processes that read hostile pages: no secrets, network, programs or access to other processes.

Linux only; needs no privileges. The parent calls `environment`, the child `confine`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from collections.abc import Mapping
from typing import Final

ALLOWED: Final = ("PATH", "HOME", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "XDG_CACHE_HOME")
ALLOWED_PREFIXES: Final = ("LC_", "PYTHON", "NUMBA_", "MALLOC_", "GLIBC_")
"""Variables that Python, Numba and the C library read. None of our own settings is among them."""
ONE_THREAD: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
"""The children are the parallelism: BLAS threads within them would only compete."""
OPEN_FILES: Final = 256

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER: Final = 1
_SPEC_ALLOW: Final = 1 << 2
"""Opts out of Spectre mitigations, with which kernels before 5.16 slow down filtered processes. Ours runs no
foreign code."""
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAP_DAC_READ_SEARCH: Final = 1 << 2
_DENIED: Final = {
    # Audit architecture; the number of seccomp; then the numbers of socket, execve, execveat, ptrace,
    # process_vm_readv, process_vm_writev, pidfd_getfd and io_uring_setup, which can open sockets, too.
    "x86_64": (0xC000_003E, 317, (41, 59, 322, 101, 310, 311, 438, 425)),
    "aarch64": (0xC000_00B7, 277, (198, 221, 281, 117, 270, 271, 438, 425)),
}
_X32: Final = 0x4000_0000
"""Bit in the numbers of the x32 ABI, a second set of all system calls on x86_64."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW: Final = 0x7FFF_0000
_REFUSE: Final = 0x0005_0000 | 1
"""EPERM"""
_NUMBER, _ARCHITECTURE = 0, 4
"""Offsets in the kernel's `struct seccomp_data`."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("operand", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: those variables of `own` (by default of this process) that its interpreter
    and libraries need."""
    given = os.environ if own is None else own
    variables = {
        name: value for name, value in given.items() if name in ALLOWED or name.startswith(ALLOWED_PREFIXES)
    }
    return variables | ONE_THREAD


def hide_memory() -> None:
    """Keep this process's memory and environment from other processes of the same user, and out of core
    files. It does not stop processes with CAP_SYS_PTRACE, such as root's.
    """
    _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def confine() -> str | None:
    """Irrevocably drop whatever reading pages does not need. Returns what the kernel refused to drop, or
    None.

    Allows at most OPEN_FILES open files, and no new privileges, sockets, other programs or access to other
    processes. Drops all capabilities but that of reading files of other users: root has it, and archives may
    need it.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    refused = []
    for give_up in (_renounce_privileges, _drop_capabilities, _filter_calls):
        try:
            give_up()
        except OSError as error:
            refused.append(str(error))
    return "; ".join(refused) or None


def start_no_more() -> None:
    """Forbid this process to start threads and processes from now on. Has no effect on root."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _renounce_privileges() -> None:
    _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable; the lower 32 bits, then the upper
    _check(_libc().capget(header, sets), "capget")
    kept = sets[1] & _CAP_DAC_READ_SEARCH
    _check(_libc().capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)), "capset")


def _filter_calls() -> None:
    """Install a seccomp filter for the calling thread and the threads that it starts. A network namespace
    would need a privilege that containers rarely have."""
    machine = platform.machine()
    if machine not in _DENIED:
        raise OSError(f"no list of system calls for {machine}")
    architecture, seccomp, denied = _DENIED[machine]
    count = len(denied)
    rows = [  # jumps count from the next row; all lead to the last one
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 0, count + 3, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, count + 1, 0, _X32),
        *((_JUMP_EQUAL, count - place, 0, number) for place, number in enumerate(denied)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    instructions = (_Instruction * len(rows))(*(_Instruction(*row) for row in rows))
    program = _Program(len(rows), instructions)
    _check(_libc().syscall(seccomp, _SET_MODE_FILTER, _SPEC_ALLOW, ctypes.byref(program)), "seccomp")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
