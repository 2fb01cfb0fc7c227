"""What is in memory: the manager, its ledger in bytes, loads and unloads."""
