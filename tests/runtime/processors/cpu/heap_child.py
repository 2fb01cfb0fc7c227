"""Frees the blocks of a run and takes them again; prints the page faults of the later rounds.

A program of its own: the heap is the process's.
"""

import ctypes
import resource
import sys

from appliance.runtime.processors.cpu.heap import set_up

BLOCKS, BLOCK_BYTES, ROUNDS = 24, 1 << 20, 8
PR_SET_THP_DISABLE = 41
"""Else a system that makes large pages by itself has one fault for 512 pages."""
_PR_SET_THP_DISABLE = 41


def main() -> None:
    """With the argument `plain` the heap is left as the system makes it."""
    if sys.argv[1:] != ["plain"]:
        set_up()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)  # faults are counted in pages, which a huge one would take 512 of
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = (ctypes.c_void_p,)
    faults: list[int] = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [libc.malloc(BLOCK_BYTES) for _ in range(BLOCKS)]
        for block in blocks:
            ctypes.memset(block, 1, BLOCK_BYTES)
        for block in reversed(blocks):
            libc.free(block)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(sum(faults[2:]))


if __name__ == "__main__":
    main()
