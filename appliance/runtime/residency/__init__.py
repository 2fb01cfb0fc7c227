"""Who should be in memory: demand, groups of variants, shares, and the loop that enacts the policy's plans."""
