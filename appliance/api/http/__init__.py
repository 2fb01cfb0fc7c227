"""HTTP itself: bodies and their bounds, forms, event streams, problem documents. Knows no box."""
