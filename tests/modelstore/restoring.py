"""Restores a backup, to be killed meanwhile: `python restoring.py ARCHIVE STATE`. Says `begun`, and `done` when it has
acknowledged.
"""

import sys
from pathlib import Path

from appliance.modelstore.store.backup import restore

if __name__ == "__main__":
    print("begun", flush=True)
    restore(Path(sys.argv[1]), Path(sys.argv[2]))
    print("done", flush=True)
