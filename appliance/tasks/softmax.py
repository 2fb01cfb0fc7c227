"""Numbers → probabilities, without overflow."""

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, float32."""
    shifted = np.asarray(logits, np.float32)
    powers = np.exp(shifted - shifted.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Element by element, float32."""
    bounded = np.clip(np.asarray(logits, np.float32), -80.0, 80.0)
    return np.asarray(1.0 / (1.0 + np.exp(-bounded)))


def are_probabilities(rows: np.ndarray) -> bool:
    """Whether each row is within 0..1 and sums to about one (fp16 and int8 graphs are not exact)."""
    if rows.size == 0 or rows.min() < -1e-3 or rows.max() > 1.001:
        return False
    return bool(np.all(np.abs(rows.sum(axis=-1, dtype=np.float32) - 1.0) < 0.02))
