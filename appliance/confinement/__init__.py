"""What a process gives up before it touches what a tenant uploaded: files, system calls, capabilities, its user."""
