"""Health: what is wrong with a box and its promises, decided from facts by one pure function."""
