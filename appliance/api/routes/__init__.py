"""One module a noun; `ROUTERS` in `api.service` names them all."""
