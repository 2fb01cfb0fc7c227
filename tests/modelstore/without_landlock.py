"""A stage program where something between it and the kernel refuses Landlock's calls, as service managers do whose list
of calls is older.

Run by `test_child` as a `forkserver.Program`.
"""

import ctypes
import struct

from appliance.confinement import landlock, privileges, seccomp
from appliance.modelstore.orders import Unpacked, UnpackOrder
from appliance.modelstore.stages import program as stages

LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
PERMISSION_DENIED, ALLOWED = 0x00050001, 0x7FFF0000


def refuse_landlock() -> None:
    privileges.gain_no_rights()
    code = b"".join(
        struct.pack("=HBBI", *line)
        for line in (
            (LOAD_NUMBER, 0, 0, 0),
            (IF_EQUAL, 0, 1, landlock.CREATE_RULESET),
            (RETURN, 0, 0, PERMISSION_DENIED),
            (RETURN, 0, 0, ALLOWED),
        )
    )
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", 4, ctypes.addressof(kept))
    assert ctypes.CDLL(None).prctl(seccomp.PR_SET_SECCOMP, seccomp.MODE_FILTER, program, 0, 0) == 0


def unpack(order: UnpackOrder, report: stages.Report) -> Unpacked:
    return Unpacked(model=f"{order.target}/model.onnx")


def get_ready() -> None:
    refuse_landlock()
    stages.STAGES["unpack"] = unpack


be_child = stages.be_child
