"""The filter of system calls that the commands of a sandbox live under, put together by hand.

Everything is allowed but what reaches beyond the sandbox, looks into other processes, or opens parts of the kernel that
programs for people do not need. Refused calls fail with `EPERM`; those that programs are prepared to miss, with
`ENOSYS`, so that they take their other way.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

# Where the fields of `struct seccomp_data` lie; arguments are 64 bits wide, low half first on both machines.
_NR, _ARCH, _ARGS = 0, 4, 16
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45  # BPF_JMP | BPF_JEQ, BPF_JGE, BPF_JSET, all with BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000
_X32 = 0x40000000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Every flag of clone() that makes a namespace.
_NEW_NAMESPACES = 0x7E020080
_AF_UNIX = 1
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# Name -> number on x86_64 and on aarch64; None where a machine has no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "personality": (135, 92),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "lookup_dcookie": (212, 18),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "nfsservctl": (180, 42),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "fanotify_init": (300, 262),
}
# Memory that belongs to no process, and so would be counted for none, besides rings that pass this filter by.
_ABSENT: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
}
_CLONE = {"x86_64": 56, "aarch64": 220}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
# What could take the processor away from the program that watches, which is process 1.
_SCHEDULING = {
    "sched_setparam": {"x86_64": 142, "aarch64": 118},
    "sched_setscheduler": {"x86_64": 144, "aarch64": 119},
    "sched_setaffinity": {"x86_64": 203, "aarch64": 122},
    "sched_setattr": {"x86_64": 314, "aarch64": 274},
}
# The same for groups of processes: the number, and which value of the first argument means a single one.
_PRIORITIES = {
    "setpriority": ({"x86_64": 141, "aarch64": 140}, 0),
    "ioprio_set": ({"x86_64": 251, "aarch64": 30}, 1),
}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _REFUSE | number)


def supported() -> bool:
    """Say whether there is a filter for this machine."""
    return platform.machine() in _AUDIT_ARCH


@cache
def assemble(machine: str) -> bytes:
    """Return the filter for a machine, `x86_64` or `aarch64`, as the kernel takes it.

    Raises:
        KeyError: There is none for that machine.
    """
    column = {"x86_64": 0, "aarch64": 1}[machine]
    program = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NR),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _KILL),
    ]
    for table, number in ((_REFUSED, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            nr = numbers[column]
            if nr is not None:
                program += [_step(_EQUAL, nr, 0, 1), _refuse(number)]
    low = [_ARGS + 8 * index for index in range(3)]
    program += [
        # clone: no flag that makes a namespace.
        _step(_EQUAL, _CLONE[machine], 0, 4),
        _step(_LOAD, low[0]),
        _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _refuse(errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    for nr in (_SOCKET[machine], _SOCKETPAIR[machine]):
        program += [
            # Sockets between processes of the sandbox, and no others.
            _step(_EQUAL, nr, 0, 4),
            _step(_LOAD, low[0]),
            _step(_EQUAL, _AF_UNIX, 1, 0),
            _refuse(errno.EPERM),
            _step(_RETURN, _ALLOW),
        ]
    for numbered in _SCHEDULING.values():
        program += [
            _step(_EQUAL, numbered[machine], 0, 4),
            _step(_LOAD, low[0]),
            _step(_EQUAL, 1, 0, 1),
            _refuse(errno.EPERM),
            _step(_RETURN, _ALLOW),
        ]
    for numbered, single in _PRIORITIES.values():
        program += [
            _step(_EQUAL, numbered[machine], 0, 6),
            _step(_LOAD, low[0]),
            _step(_EQUAL, single, 0, 2),
            _step(_LOAD, low[1]),
            _step(_EQUAL, 1, 0, 1),
            _refuse(errno.EPERM),
            _step(_RETURN, _ALLOW),
        ]
    program += [
        # ioctl: nothing that types into a terminal.
        _step(_EQUAL, _IOCTL[machine], 0, 5),
        _step(_LOAD, low[1]),
        _step(_EQUAL, _TIOCSTI, 1, 0),
        _step(_EQUAL, _TIOCLINUX, 0, 1),
        _refuse(errno.EPERM),
        _step(_RETURN, _ALLOW),
        # prlimit: a process may change its own limits, never those of the program that watches it.
        _step(_EQUAL, _PRLIMIT[machine], 0, 3),
        _step(_LOAD, low[0]),
        _step(_EQUAL, 0, 1, 0),
        _refuse(errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)
