"""The service's side of an import: what is done in which order, and what came of it. Imports no onnx."""
