"""The experiments of the five papers in virtual time, and their claims beside ours: `scripts/reproduce PAPER`.

Importing this package lets problems and scenarios name the policies that exist only to be compared with (`baselines`).
"""

from appliance.lab.registry import add_policies
from reproduce.baselines import ADAPTATION, ALLOCATION, OFFLOAD

add_policies("adaptation", ADAPTATION)
add_policies("allocation", ALLOCATION)
add_policies("offload", OFFLOAD)
