"""The box's own API: one module a noun; `ROUTERS` in `api.service` names them all."""
