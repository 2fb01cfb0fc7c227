"""What the box decided and why: the log that persists it, and the document that can be replayed."""
