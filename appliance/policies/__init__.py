"""Pure decisions. A policy gets a snapshot, returns a plan with a reason, and touches nothing."""
