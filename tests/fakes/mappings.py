"""What the kernel says of one mapped file of a process: exact, whatever else the process does."""

from pathlib import Path


def smaps_of(file: Path | int, process: int | str = "self") -> list[bytes]:
    """The lines of smaps about the mappings of a file, which is named by its path in that process, or by its inode."""
    lines: list[bytes] = []
    is_of_it = False
    for line in Path(f"/proc/{process}/smaps").read_bytes().splitlines(keepends=True):
        if not line[:1].isupper():
            # address, permissions, offset, device, inode, path
            is_of_it = int(line.split()[4]) == file if isinstance(file, int) else line.rstrip().endswith(bytes(file))
        if is_of_it:
            lines.append(line)
    return lines


def resident_bytes(file: Path | int, process: int | str = "self") -> int:
    """Bytes of the mappings of a file that are in memory."""
    return sum(int(line.split()[1]) * 1024 for line in smaps_of(file, process) if line.startswith(b"Rss:"))
