"""Registry of forecasters."""
