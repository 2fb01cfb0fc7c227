"""The way of a request, from admission to its answer."""
