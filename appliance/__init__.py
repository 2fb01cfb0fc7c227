"""The edge appliance: one box that serves the neural networks of many tenants to many small devices."""

import os

__version__ = "0.1.0"

# Before anything of ours imports ONNX Runtime (1.31), which otherwise opens a telemetry database in the user's cache
# folder and starts a thread for it; in children and guards, too, whose environment is empty.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
