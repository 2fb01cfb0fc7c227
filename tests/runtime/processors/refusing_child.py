"""The measuring child on a machine with an accelerator that refuses some operators: real ONNX Runtime, with the rules
of a device of its own.
"""

from pathlib import Path

import onnx

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.runtime import processors
from appliance.runtime.processors.cpu.session import Loaded, OnnxSessions
from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.measuring import measure

REFUSED = frozenset({"Transpose", "Reshape", "Softmax"})
NPU = ProcessorDescription("npu", "npu", 1, 1, "npu", "fake accelerator")


class RefusingSessions(OnnxSessions):
    """A network with an operator that it does not take cannot be loaded; nothing is computed elsewhere in silence."""

    def load(self, form: PreparedForm) -> Loaded:
        if not form.optimised and not takes(Path(form.path)):
            raise LoadFailed(build_id=form.build_id, reason="the accelerator does not take it")
        return super().load(form)

    def supports(self, network: Path) -> bool:
        return takes(network) and super().supports(network)

    def prepare(self, source: Path, target_dir: Path) -> str | None:
        return super().prepare(source, target_dir) if takes(source) else None


def takes(path: Path) -> bool:
    return not REFUSED & {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}


def main() -> None:
    kind = Kind(processor=RefusingSessions, sessions=lambda workers, threads: RefusingSessions(threads))
    processors.KINDS = {**processors.KINDS, "npu": kind}
    measure.main()


if __name__ == "__main__":
    main()
