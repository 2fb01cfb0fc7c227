"""Execution providers of ONNX Runtime beside the CPU's: CUDA, TensorRT, XNNPACK."""
