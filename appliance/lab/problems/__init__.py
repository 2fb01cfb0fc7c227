"""One module per kind of `appliance plan`: written problem → policy input, plan → written answer."""
