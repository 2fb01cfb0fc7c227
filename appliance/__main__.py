"""Lets `python -m appliance` be the command line; `scripts/appliance` starts it this way."""

from appliance.cli.main import main

if __name__ == "__main__":
    main()
