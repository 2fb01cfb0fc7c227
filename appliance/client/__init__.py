"""The box as seen from outside: a light client of its API. Imports no web framework, database or ONNX Runtime.

`Client` is imported with its first use: a device that streams needs none of the shapes of the rest of the API.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.client.errors import UnexpectedAnswer

__all__ = ["Client", "UnexpectedAnswer"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from appliance.client.client import Client

        return Client
    if name == "UnexpectedAnswer":
        from appliance.client.errors import UnexpectedAnswer

        return UnexpectedAnswer
    raise AttributeError(name)
