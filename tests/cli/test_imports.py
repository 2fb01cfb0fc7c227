"""What `appliance import` makes of its arguments before anything is sent."""

import tarfile
from pathlib import Path

import pytest

from appliance.cli.imports import name_of, read_metadata
from appliance.cli.packing import as_file
from appliance.terminal.failure import CommandFailed


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/tmp/CenterFace.onnx", "centerface"),
        ("/tmp/My Net_v2.tar.gz", "my-net_v2"),
        ("/tmp/net-1.0.zip", "net-1.0"),
        ("/tmp/..onnx", "model"),
        ("/tmp/" + "x" * 80 + ".onnx", "x" * 63),
    ],
)
def test_file_name_becomes_a_legal_model_name(file: str, name: str) -> None:
    """Lower case, no blanks, no ending, at most 63 characters."""
    assert name_of(Path(file)) == name


def test_metadata_option_is_json_text_or_a_file(tmp_path: Path) -> None:
    """`@FILE` reads the file; nothing is an empty object."""
    (tmp_path / "m.json").write_text('{"labels": ["cat"]}')
    assert read_metadata(f"@{tmp_path / 'm.json'}") == read_metadata('{"labels": ["cat"]}') == {"labels": ["cat"]}
    assert read_metadata(None) == {}


def test_packed_folder_depends_on_contents_only(tmp_path: Path) -> None:
    """Equal contents give equal bytes, whatever the times of the files say; sub-folders keep their names."""
    packed = []
    for name in ("one", "two"):
        folder = tmp_path / name / "net"
        (folder / "evaluation").mkdir(parents=True)
        (folder / "net.onnx").write_bytes(b"graph")
        (folder / "evaluation" / "0.png").write_bytes(b"picture")
        with as_file(folder) as file:
            packed.append(file.read_bytes())
            with tarfile.open(file) as archive:
                assert archive.getnames() == ["evaluation/0.png", "net.onnx"]
        assert not file.exists()
    assert packed[0] == packed[1]


def test_folder_without_onnx_file_is_refused_before_upload(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"no .onnx file in the folder"), as_file(tmp_path):
        pass
