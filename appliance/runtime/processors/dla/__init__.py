"""The DLA cores of a Jetson, by TensorRT's own Python API: ONNX Runtime's provider knows core 0 only."""
