"""What the box would do: single decisions on written problems, by the very policies that the running box calls. No API, no store."""
