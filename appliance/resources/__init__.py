"""What of the machine the box may have: memory and cores, within the limits of its cgroups, and word of stalls."""
