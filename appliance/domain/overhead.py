"""Processes that take memory beside models, by sort, as people are told of them."""

GUARDS = "guards"
FORK_SERVERS = "fork servers"
PLANNERS = "planner processes"
SORTS = (GUARDS, FORK_SERVERS, PLANNERS)
