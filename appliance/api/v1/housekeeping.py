"""What the box does now and then by itself: when it ran last, and when it runs next."""

from fastapi import APIRouter

from appliance.api.http.documented import problems
from appliance.api.v1.deps import Admin, TheBox
from appliance.domain.errors import Forbidden
from appliance.wire.backups import ChoreShape

router = APIRouter(prefix="/v1/housekeeping", tags=["system"])


@router.get("", summary="Chores of the box", responses=problems(Forbidden))
async def housekeeping(box: TheBox, _: Admin) -> list[ChoreShape]:
    """Backups, the check of the database, what is forgotten when it is old: by name, with the latest run and what came
    of it, and the next one. Needs an admin key.
    """
    return [ChoreShape.model_validate(one) for one in box.housekeeping.statuses()]
