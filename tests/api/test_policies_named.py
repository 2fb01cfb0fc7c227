"""A box whose settings name a policy that there is not does not start."""

from pathlib import Path

import pytest

from tests.api.stand import running


@pytest.mark.anyio
@pytest.mark.parametrize("family", ["selection", "batching", "dispatch", "eviction"])
async def test_start_with_an_unknown_policy_fails_naming_the_key(family: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=rf"policies\.{family}: 'x' is not one of: .+, "):
        async with running(tmp_path, policies={family: "x"}):
            pass
