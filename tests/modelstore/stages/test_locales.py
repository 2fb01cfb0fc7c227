"""Texts are normalised by the rules of a locale that every machine has."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from appliance.domain.errors import BadModel
from appliance.modelstore.orders import InspectOrder
from appliance.modelstore.stages.inspect import inspect
from tests.modelstore import networks


def normalising(attributes: str) -> onnx.ModelProto:
    node = f"y = StringNormalizer<{attributes}>(x)"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (string[N] x) => (string[N] y) {{ {node} }}'
    return onnx.parser.parse_model(text)


def normalised(attributes: str, folder: Path) -> list[str]:
    source = networks.write(normalising(attributes), folder)
    found = inspect(InspectOrder(source, str(folder / "out")), lambda share, message: None)
    return list(networks.run(found.model, x=np.array(["Äpfel", "ЖЩ", "the"], object))[0])


@pytest.mark.parametrize("locale", ["", 'locale="en_US", ', 'locale="de_DE.UTF-8", ', 'locale="xx_YY", '])
def test_text_normaliser_of_missing_locale_follows_common_rules(locale: str, tmp_path: Path) -> None:
    """Upper and lower case are the same in all languages but for two."""
    assert normalised(f'{locale}case_change_action="LOWER"', tmp_path) == ["äpfel", "жщ", "the"]


def test_text_normaliser_of_plain_c_changes_ascii_only(tmp_path: Path) -> None:
    assert normalised('locale="C", case_change_action="LOWER"', tmp_path) == ["Äpfel", "ЖЩ", "the"]


def test_text_normaliser_of_missing_turkish_locale_is_refused_by_name(tmp_path: Path) -> None:
    """The Turkish i is another letter: no other locale stands in for that one."""
    source = networks.write(normalising('locale="tr_TR.nowhere", case_change_action="LOWER"'), tmp_path)
    with pytest.raises(BadModel, match=r"the locale tr_TR\.nowhere of a StringNormalizer is not installed") as refused:
        inspect(InspectOrder(source, str(tmp_path / "out")), lambda share, message: None)
    assert "::" not in str(refused.value)
