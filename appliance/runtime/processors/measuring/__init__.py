"""What a build costs on a kind of processor, measured in a process of its own."""
