"""Band's experiments (MobiSys 2022, §6) on an emulated phone."""
