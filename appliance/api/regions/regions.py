"""The shared memory regions of all tenants: each sees, uses and drops its own."""

from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.api.regions.region import Region, SharedObject
from appliance.domain.errors import BadRegion, QuotaExceeded, UnknownRegion

_TENANTS = 10
"""All tenants together may have so many times what one may."""


def files_max(per_tenant_max: int) -> int:
    """Files that regions may keep open: each its own."""
    return per_tenant_max * _TENANTS


@dataclass(slots=True)
class Regions:
    """By tenant and name, bounded. Event-loop thread only; whoever uses a region while it is dropped keeps it open."""

    per_tenant_max: int
    bytes_max: int
    """Of one tenant's regions together."""
    _tenants: dict[str, dict[str, Region]] = field(default_factory=dict)

    def add(self, tenant: str, region: Region) -> None:
        """Raises: BadRegion, QuotaExceeded."""
        own = self._tenants.get(tenant, {})
        if region.name in own:
            raise BadRegion(reason=f"the shared memory region {region.name!r} is registered already")
        if region.offset + region.size > region.object.size:
            raise BadRegion(
                reason=f"{region.size} bytes from offset {region.offset} do not fit into the {region.object.size} of "
                f"the shared memory object {region.key!r}"
            )
        if self._is_of_another(tenant, region.object):
            raise BadRegion(reason=f"the shared memory object {region.key!r} is registered by another tenant")
        for limit, used, of_all in (
            (self.per_tenant_max, len(own), False),
            (files_max(self.per_tenant_max), len(self), True),
        ):
            if used >= limit:
                quota = "shared memory regions"
                raise QuotaExceeded(tenant=tenant, quota=quota, limit=limit, used=used, of_all=of_all)
        held = sum(each.size for each in own.values())
        if held + region.size > self.bytes_max:
            quota = "bytes of shared memory"
            raise QuotaExceeded(tenant=tenant, quota=quota, limit=self.bytes_max, used=held, needed=region.size)
        self._tenants.setdefault(tenant, {})[region.name] = region

    def __len__(self) -> int:
        return sum(map(len, self._tenants.values()))

    def _is_of_another(self, tenant: str, found: SharedObject) -> bool:
        others = (own for name, own in self._tenants.items() if name != tenant)
        return any(each.object.identity == found.identity for own in others for each in own.values())

    def get(self, tenant: str, name: str) -> Region:
        """Raises: UnknownRegion, also for another tenant's."""
        region = self._tenants.get(tenant, {}).get(name)
        if region is None:
            raise UnknownRegion(name=name[:80])
        return region

    def all(self, tenant: str) -> list[Region]:
        """A tenant's, in the order of their registering."""
        return list(self._tenants.get(tenant, {}).values())

    def drop(self, tenant: str, name: str) -> None:
        """One that is not there is no error, as the protocol's clients expect."""
        self._drop_where(tenant, lambda region: region.name == name)

    def drop_tenant(self, tenant: str) -> None:
        """All of a tenant."""
        self._tenants.pop(tenant, None)

    def drop_key(self, key_id: str) -> None:
        """All that an access key has registered."""
        for tenant in list(self._tenants):
            self._drop_where(tenant, lambda region: region.key_id == key_id)

    def clear(self) -> None:
        """Everybody's."""
        self._tenants.clear()

    def _drop_where(self, tenant: str, is_dropped: Callable[[Region], bool]) -> None:
        left = {name: each for name, each in self._tenants.get(tenant, {}).items() if not is_dropped(each)}
        if left:
            self._tenants[tenant] = left
        else:
            self._tenants.pop(tenant, None)
