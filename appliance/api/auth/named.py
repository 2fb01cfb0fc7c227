"""What a name means to a caller, and whether the caller may change it: the same for every protocol.

What a tenant may not see answers as if it did not exist (404). What another tenant shares it may see and use; to change
it is refused (403).
"""

from appliance.api.auth.keyring import Principal
from appliance.domain.catalogue import Application, Model
from appliance.domain.errors import Forbidden, UnknownApplication, UnknownPipeline
from appliance.domain.names import pipeline_id
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.pipelines import Pipelines


def callable_application(catalogue: Catalogue, principal: Principal, name: str) -> Application:
    """The application that a name means to the caller; one that the key may not call does not exist for it.

    Raises: UnknownApplication.
    """
    if not principal.may_call(name):
        raise UnknownApplication(name=name)
    return catalogue.resolve(principal.tenant, name)


def own_application(catalogue: Catalogue, principal: Principal, name: str) -> Application:
    """An application that the caller may change.

    Raises: UnknownApplication; Forbidden for a shared one of another tenant.
    """
    application = callable_application(catalogue, principal, name)
    if application.tenant != principal.tenant:
        raise Forbidden(action="change an application that another tenant shares")
    return application


def own_model(catalogue: Catalogue, principal: Principal, name: str) -> Model:
    """A model that the caller may change. Raises: UnknownModel; Forbidden for a shared one of another tenant."""
    model = catalogue.resolve_model(principal.tenant, name)
    if model.tenant != principal.tenant:
        raise Forbidden(action="change a model that another tenant shares")
    return model


def callable_pipeline(pipelines: Pipelines, principal: Principal, name: str) -> LivePipeline:
    """The pipeline that a name means to the caller; one that the key may not call does not exist for it.

    Raises: UnknownPipeline.
    """
    if not principal.may_call_pipeline(name):
        raise UnknownPipeline(name=name)
    return pipelines.get(pipeline_id(principal.tenant, name))
