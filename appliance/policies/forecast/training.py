"""Training a recurrent network on the box within a stated budget: a fixed number of epochs over a bounded number of
rows, whatever the history.

Pure and deterministic: the same rows and seed give the same weights. It computes for about a tenth of a second, so the
caller runs it off the loop.
"""

import numpy as np

from appliance.policies.forecast.vanilla import Floats, Vanilla, Weights, gradient

STEPS = 8
HIDDEN = 12
ROWS_MAX = 384
"""The latest ones; older history is not learnt from."""
EPOCHS = 150
"""The whole batch once per epoch: about 0.1 s of one core in all.

Twice as many learn chance by heart and order no better.
"""
RATE = 0.02
DECAY = 0.002
"""Weights shrink by this share of the rate per epoch, so that a short history is not learnt by heart."""


def windows(series: Floats, steps: int = STEPS) -> Floats:
    """series[n] → every `steps` neighbours: [n - steps + 1, steps]."""
    return np.lib.stride_tricks.sliding_window_view(series, steps)


def train(inputs: Floats, targets: Floats, seed: int, epochs: int = EPOCHS) -> Vanilla:
    """inputs[rows, steps], targets[rows] → a network; Adam with a rate that falls to zero along a half cosine."""
    inputs, targets = np.ascontiguousarray(inputs[-ROWS_MAX:]), targets[-ROWS_MAX:]
    weights = _start(seed)
    slow, square = np.zeros_like(weights.flat), np.zeros_like(weights.flat)
    for epoch in range(1, epochs + 1):
        slope = gradient(weights, inputs, targets)
        slow = 0.9 * slow + 0.1 * slope
        square = 0.99 * square + 0.01 * slope * slope
        rate = RATE * 0.5 * (1.0 + np.cos(np.pi * (epoch - 1) / epochs))
        step = slow / (1.0 - 0.9**epoch) / (np.sqrt(square / (1.0 - 0.99**epoch)) + 1e-8)
        weights.flat[:] -= rate * (step + DECAY * weights.flat)
    return Vanilla(weights, inputs.shape[1])


def _start(seed: int) -> Weights:
    """Small random weights; no bias."""
    weights = Weights(np.zeros(Weights.size(HIDDEN)), HIDDEN)
    draw = np.random.default_rng(seed)
    w, recurrent, _, v, _ = weights.parts
    w[:] = draw.normal(0.0, 0.7, w.shape)
    recurrent[:] = draw.normal(0.0, 0.7 / np.sqrt(HIDDEN), recurrent.shape)
    v[:] = draw.normal(0.0, 0.5 / np.sqrt(HIDDEN), v.shape)
    return weights
