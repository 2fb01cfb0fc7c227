"""Memory and cores of the machine that the box may have, within the limits of its cgroups, and word of stalls."""
