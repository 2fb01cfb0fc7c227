"""A plan of loads by a planner that knows every arrival, and bounds on what any planner could reach."""
