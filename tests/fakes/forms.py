"""Prepared forms that tests made with the sessions of a processor."""

from pathlib import Path

from appliance.domain.hardware import PreparedForm


def prepared_form(build_id: str, folder: Path) -> PreparedForm:
    """The form that `OnnxSessions.prepare` has written there."""
    size_bytes = sum(file.stat().st_size for file in folder.iterdir())
    return PreparedForm(build_id, str(folder / "model.onnx"), size_bytes, optimised=True)
