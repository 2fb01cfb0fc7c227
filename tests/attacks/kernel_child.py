"""The process that attacked kernels run in: takes cases on standard input, answers each in one line.

A case is its length in four bytes and then (model, inputs), pickled by the test that started it.
"""

import pickle
import resource
import struct
import sys
from functools import cache

import onnxruntime as ort

from appliance.runtime.processors.cpu.session import OnnxSessions

MEMORY_MAX = 4 * 2**30


@cache
def session(model: bytes) -> ort.InferenceSession:
    """With the options of serving, and its fusing."""
    return ort.InferenceSession(model, OnnxSessions(1).options(optimised=False), providers=["CPUExecutionProvider"])


def main() -> None:
    ort.set_default_logger_severity(4)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while head := sys.stdin.buffer.read(4):
        model, feeds = pickle.loads(sys.stdin.buffer.read(struct.unpack("<I", head)[0]))
        try:
            session(model).run(None, feeds)
            answer = "ok"
        except Exception as error:  # the runtime's errors share no class
            answer = f"refused: {type(error).__name__}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
