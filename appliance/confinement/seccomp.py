"""Filters of system calls (seccomp BPF): which calls a confined process may still make.

Two of them: `computing` lists what a guard needs, and refuses all else; `converting` lists what a stage of an import
must not do. A refused call fails with EPERM, so that a library that asks in vain goes on. There is no maintained
binding to libseccomp for the Pythons that we run on, and the filter is a few dozen instructions.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.confinement.syscalls import NUMBERS

_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = _ERRNO | 1, _ERRNO | 38
_LOAD, _AND, _EQUAL, _GREATER_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Instructions of classic BPF: load a word, mask it, jump where it is equal or not below, return."""
_NR_OFFSET, _ARCH_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_X32 = 0x40000000
"""From here on the numbers are those of x32, under which every call has a second name."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → (column of the numbers, AUDIT_ARCH)."""
PR_SET_SECCOMP, MODE_FILTER = 22, 2

CLONE_THREAD = 0x00010000
CLONE_NEW = 0x7E020080
"""Every kind of new namespace."""
AF_UNIX = 1
PR_SET_NAME = 15
ARCH_XCOMP_PERM = 0x1022
"""Whether this process may use a unit of the processor that takes much state, for example for matrices; one more: it
wants to.
"""
MACHINES = frozenset(_ARCHITECTURES)
"""That filters can be made for."""


@dataclass(frozen=True, slots=True)
class Only:
    """A condition on a call: the 32-bit words of its arguments, masked, have these values."""

    words: tuple[tuple[int, int, int], ...]
    """(argument × 2, + 1 for its high word; mask; value)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is allowed without conditions, or refused without, and what under one; `others`: all that is not named."""

    others: bool
    named: tuple[str, ...]
    """Allowed where `others` are not, refused where they are."""
    conditional: tuple[tuple[str, Only], ...]
    """Allowed only so."""


def computing() -> Rules:
    """For a guard: threads, memory, reading, talking over what it was given; nothing about other processes."""
    own = ((0, 0xFFFFFFFF, os.getpid()),)
    return Rules(
        others=False,
        named=tuple(_COMPUTING.split()),
        conditional=(
            ("clone", Only(((0, CLONE_THREAD, CLONE_THREAD),))),
            ("tgkill", Only(own)),
            ("prctl", Only(((0, 0xFFFFFFFF, PR_SET_NAME),))),
            ("arch_prctl", Only(((0, 0xFFFFFFFE, ARCH_XCOMP_PERM),))),
            ("prlimit64", Only(((0, 0xFFFFFFFF, 0),))),
        ),
    )


def converting() -> Rules:
    """For a stage of an import: no sockets but local ones, and nothing about other processes."""
    own = Only(((0, 0xFFFFFFFF, os.getpid()),))
    myself = Only(((0, 0xFFFFFFFF, 0),))
    return Rules(
        others=True,
        named=tuple(_FORBIDDEN.split()),
        conditional=(
            ("socket", Only(((0, 0xFFFFFFFF, AF_UNIX),))),
            ("clone", Only(((0, CLONE_NEW, 0),))),
            ("kill", own),
            ("tgkill", own),
            ("prlimit64", myself),
            ("sched_setaffinity", myself),
            ("setpriority", Only(((0, 0xFFFFFFFF, 0), (2, 0xFFFFFFFF, 0)))),
        ),
    )


def restrict(rules: Rules) -> bool:
    """Put this thread, and those that it starts, under the rules for good; False where the kernel or the machine has
    no such thing.

    Needs `no_new_privs` or root.
    """
    if platform.machine() not in MACHINES:
        return False
    program = _program(rules, *_ARCHITECTURES[platform.machine()])
    code = ctypes.create_string_buffer(b"".join(program))
    descriptor = struct.pack("@HP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_SECCOMP, MODE_FILTER, descriptor, 0, 0) == 0)


def _program(rules: Rules, column: int, architecture: int) -> list[bytes]:
    """The filter: architecture, then one block a call, each ending in a return."""
    named, others = (_EPERM, _ALLOW) if rules.others else (_ALLOW, _EPERM)
    program = [
        _instruction(_LOAD, _ARCH_OFFSET),
        _instruction(_EQUAL, architecture, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NR_OFFSET),
    ]
    if column == 0:
        program += [_instruction(_GREATER_EQUAL, _X32, 0, 1), _instruction(_RETURN, _EPERM)]
    clone3 = NUMBERS["clone3"][column]
    assert clone3 is not None
    # Its flags lie in memory, out of reach; glibc then takes `clone`.
    program += [_instruction(_EQUAL, clone3, 0, 1), _instruction(_RETURN, _ENOSYS)]
    for name, only in rules.conditional:
        program += _block(NUMBERS[name][column], only)
    for name in rules.named:
        number = NUMBERS[name][column]
        if number is not None:
            program += [_instruction(_EQUAL, number, 0, 1), _instruction(_RETURN, named)]
    return [*program, _instruction(_RETURN, others)]


def _block(number: int | None, only: Only) -> Sequence[bytes]:
    if number is None:
        return []
    checks = [
        part
        for word, mask, value in only.words
        for part in (
            _instruction(_LOAD, _ARGUMENTS_OFFSET + 4 * word),
            _instruction(_AND, mask),
            _instruction(_EQUAL, value & mask, 1, 0),
            _instruction(_RETURN, _EPERM),
        )
    ]
    return [_instruction(_EQUAL, number, 0, len(checks) + 1), *checks, _instruction(_RETURN, _ALLOW)]


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


_COMPUTING = """
access brk clock_getres clock_gettime clock_nanosleep close dup exit exit_group faccessat faccessat2 fadvise64 fcntl
fstat futex futex_waitv getcpu getcwd getdents64 getegid geteuid getgid getpid getppid getrandom getrusage gettid
gettimeofday getuid lseek lstat madvise membarrier mincore mmap mprotect mremap munmap nanosleep newfstatat open openat
poll ppoll pread64 preadv read readlink readlinkat readv recvfrom recvmsg restart_syscall rseq rt_sigaction
rt_sigprocmask rt_sigreturn sched_getaffinity sched_yield sendmsg sendto set_robust_list sigaltstack stat statx sysinfo
times uname write writev
"""

_FORBIDDEN = """
add_key bpf chmod chown fanotify_init fchmod fchmodat fchmodat2 fchown fchownat fsconfig fsetxattr fsmount fsopen
fremovexattr fspick io_uring_enter io_uring_register io_uring_setup ioprio_set kcmp keyctl lchown lremovexattr lsetxattr
migrate_pages mount mount_setattr move_mount move_pages name_to_handle_at open_by_handle_at open_tree perf_event_open
personality pidfd_getfd pidfd_open pidfd_send_signal pivot_root process_madvise process_mrelease process_vm_readv
process_vm_writev ptrace removexattr removexattrat request_key rt_sigqueueinfo rt_tgsigqueueinfo sched_setattr
sched_setparam sched_setscheduler setns setpgid setsid setxattr setxattrat tkill umount2 unshare userfaultfd chroot
"""
