"""Sessions of devices with a box, for who looks after it; devices themselves have `client/device`."""

from collections.abc import Iterator

from appliance.client.sending import Sending
from appliance.wire.sessions import SessionShape


class SessionCalls(Sending):
    """Methods of a client about `/v1/sessions`."""

    def sessions(self) -> Iterator[SessionShape]:
        """Those of the tenant that this key may see, with those that ended within the last minute."""
        return self._pages("/v1/sessions", SessionShape)

    def session(self, id: str) -> SessionShape:
        """One, with its plan and what became of its frames."""
        return self._get(f"/v1/sessions/{id}", SessionShape)

    def end_session(self, id: str) -> None:
        """Its promise is given up; the device has to ask for another one."""
        self._send("DELETE", f"/v1/sessions/{id}")
