"""Registry of adaptation policies: the name in the settings → how to make one."""
