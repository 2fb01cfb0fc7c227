"""Texts are normalised by the rules of a locale that every machine has."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import inspected, refusal


def normalising(attributes: str) -> onnx.ModelProto:
    return networks.parsed("string[N] x", f"y = StringNormalizer<{attributes}>(x)", output="string[N] y")


def normalised(attributes: str, folder: Path) -> list[str]:
    found = inspected(normalising(attributes), folder)
    return list(networks.run(found.model, x=np.array(["Äpfel", "ЖЩ", "the"], object))[0])


@pytest.mark.parametrize("locale", ["", 'locale="en_US", ', 'locale="de_DE.UTF-8", ', 'locale="xx_YY", '])
def test_text_normaliser_of_missing_locale_follows_common_rules(locale: str, tmp_path: Path) -> None:
    """Upper and lower case are the same in all languages but for two."""
    assert normalised(f'{locale}case_change_action="LOWER"', tmp_path) == ["äpfel", "жщ", "the"]


def test_text_normaliser_of_plain_c_changes_ascii_only(tmp_path: Path) -> None:
    assert normalised('locale="C", case_change_action="LOWER"', tmp_path) == ["Äpfel", "ЖЩ", "the"]


def test_text_normaliser_of_missing_turkish_locale_is_refused_by_name(tmp_path: Path) -> None:
    """The Turkish i is another letter: no other locale stands in for that one."""
    told = refusal(normalising('locale="tr_TR.nowhere", case_change_action="LOWER"'), tmp_path)
    assert "the locale tr_TR.nowhere of a StringNormalizer is not installed" in told
    assert "::" not in told
