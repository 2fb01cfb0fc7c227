"""The CPU by ONNX Runtime: sessions, prepared forms, measuring, the heap."""
