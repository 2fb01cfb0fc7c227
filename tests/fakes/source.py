"""A source of builds that are nothing but a name."""

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm


class FakeSource:
    """Port `VariantSource`; builds in `missing` are not there."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.sizes: dict[str, int] = {}
        """Bytes of files, where not 0."""

    async def open_build(self, build_id: str) -> PreparedForm:
        if build_id in self.missing:
            raise LoadFailed(build_id=build_id, reason="the content is missing")
        kind = build_id.split("@")[1] if "@" in build_id else "cpu"
        return PreparedForm(build_id, f"/nowhere/{build_id}", self.sizes.get(build_id, 0), optimised=True, kind=kind)
