"""Which service a session's frames go to."""

from dataclasses import dataclass

from appliance.domain.session import Session
from appliance.runtime.sessions.application_service import ApplicationService
from appliance.runtime.sessions.pipeline_service import PipelineService
from appliance.runtime.sessions.service import Service


@dataclass(frozen=True, slots=True)
class Services:
    """Both kinds."""

    applications: ApplicationService
    pipelines: PipelineService

    def of(self, session: Session) -> Service:
        """The one that serves a session."""
        return self.pipelines if session.pipeline_id else self.applications

    def plan_soon(self) -> None:
        """Who is there, or what was promised, has changed."""
        self.applications.replan.set()
        self.pipelines.replan.set()
