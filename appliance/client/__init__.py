"""The box as seen from outside: a light client of its API. Imports no web framework, database or ONNX Runtime."""

from appliance.client.client import Client
from appliance.client.errors import UnexpectedAnswer

__all__ = ["Client", "UnexpectedAnswer"]
