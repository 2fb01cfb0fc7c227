"""Moves the weights of a prepared form to addresses that the kernels can read, and drops what cannot be read again.

ONNX Runtime (1.31) saves prepacked weights one after the other, at any offset of the file. The file is mapped when it
is loaded, so an offset that is no multiple of 64 is an address that is none either, and matrix kernels that load whole
vector registers end the process with SIGSEGV. Runs in the measuring child, which may import onnx.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

ALIGNMENT_BYTES = 64
"""A cache line, and the widest vector register."""
CHUNK_BYTES = 2**20
_PREPACKED = "prepacked"


def align(model: Path, weights: Path) -> None:
    """Rewrite `weights`, and the offsets in `model` that point into it, so that everything starts at a multiple of 64
    bytes.

    Raises: ValueError when the model names its weights in a way that is not understood; then neither file is to be
    used.
    """
    import onnx

    if not weights.is_file() or not weights.stat().st_size:
        return
    proto = onnx.load(str(model), load_external_data=False)
    aligned = weights.with_name(weights.name + ".aligned")
    with (
        weights.open("rb") as old,
        aligned.open("xb") as new,
        mmap.mmap(old.fileno(), 0, access=mmap.ACCESS_READ) as source,
    ):
        for tensor in _tensors(proto.graph):
            _move(tensor, source, new)
    os.replace(aligned, weights)
    onnx.save(proto, str(model))


def _tensors(graph: "GraphProto") -> Iterator["TensorProto"]:
    """Every initializer with external data, also those of subgraphs."""
    yield from (tensor for tensor in graph.initializer if tensor.external_data)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _move(tensor: "TensorProto", source: mmap.mmap, new: BinaryIO) -> None:
    entries = {entry.key: entry for entry in tensor.external_data}
    length = int(entries["length"].value)
    offset = int(entries["offset"].value) if "offset" in entries else 0
    moved = _copy(source, new, offset, length)
    if "offset" in entries:
        entries["offset"].value = str(moved)
    elif moved:
        raise ValueError(f"{tensor.name} has no offset to change")
    for key, entry in entries.items():
        if key.startswith(_PREPACKED):
            if _has_empty_buffer(entry.value):
                tensor.external_data.remove(entry)
            else:
                entry.value = _moved_prepacked(entry.value, source, new)


def _has_empty_buffer(value: str) -> bool:
    """Whether ONNX Runtime (1.31) has saved what it cannot read again, as it does for quantized depthwise convolutions:
    it takes a length of 0 for that of the whole file. Without the entry such weights are ordered anew at each load.
    """
    return any(buffer.split(";")[1] == "0" for buffer in value.split("|")[1:])


def _moved_prepacked(value: str, source: mmap.mmap, new: BinaryIO) -> str:
    """`kernel|offset;length;checksum|…`, one part for each buffer of the kernel."""
    kernel, *buffers = value.split("|")
    moved = [kernel]
    for buffer in buffers:
        offset, length, *rest = buffer.split(";")
        moved.append(";".join([str(_copy(source, new, int(offset), int(length))), length, *rest]))
    return "|".join(moved)


def _copy(source: mmap.mmap, new: BinaryIO, offset: int, length: int) -> int:
    """Append bytes at the next multiple of the alignment; returns where they start."""
    if offset < 0 or length < 0 or offset + length > len(source):
        raise ValueError(f"{length} bytes at {offset} lie outside of the weights")
    start = -(-new.tell() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    new.seek(start)
    for at in range(offset, offset + length, CHUNK_BYTES):
        new.write(source[at : min(at + CHUNK_BYTES, offset + length)])
    return start
