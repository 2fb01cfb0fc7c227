"""ARISE's experiments (MobiSys 2024, §6) on an emulated box."""
