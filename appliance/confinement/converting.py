"""What a child that converts or measures an upload gives up, beside files: system calls, capabilities, new rights."""

from appliance.confinement import privileges, seccomp


def enter() -> bool:
    """For good; whether all of it took effect. Before other threads are started: a filter is of one thread."""
    privileges.gain_no_rights()
    privileges.bound_capabilities()
    privileges.drop_capabilities()
    has_none = not any(privileges.capability_sets())
    return seccomp.restrict(seccomp.converting()) and has_none
