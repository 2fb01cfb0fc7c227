"""The child's side of an import: each stage runs in a process with limits. The only room that may import onnx."""
