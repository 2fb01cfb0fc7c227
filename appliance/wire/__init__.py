"""The shapes of HTTP bodies under `/v1`, and the names of errors on the wire; shared by the API and the client.

Apart from `domain`, so that what travels may be versioned without touching the program, and free of FastAPI, so that
the client stays light. Times are ISO 8601 in UTC, durations `_ms` or `_s`, sizes `_bytes`; fields may be added, so a
client ignores what it does not know.
"""
