"""Which applications of the demo stream a clip in place of sending single inputs."""

from appliance.domain.catalogue import TaskKind

CLIPS = frozenset({TaskKind.OBJECT_DETECTION, TaskKind.FACE_DETECTION})
"""Tasks whose inputs are frames of a clip."""
