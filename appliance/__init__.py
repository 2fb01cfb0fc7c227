"""The edge appliance: one box that serves the neural networks of many tenants to many small devices."""

__version__ = "0.1.0"
