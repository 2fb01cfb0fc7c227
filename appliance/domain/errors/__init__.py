"""Everything that can go wrong, as types with facts for fields.

ApplianceError
├── NotFound: UnknownTenant, UnknownModel, UnknownApplication, UnknownVariant, UnknownJob, UnknownUpload, UnknownKey,
│   UnknownRequest, UnknownSession, UnknownSimulation, UnknownDecision, UnknownBackup, UnknownRegion, SharedMemoryOff,
│   UnknownPipeline, UnknownClient, UnknownReceiver
├── Conflict: AlreadyExists, InUse, BoxNotEmpty, Overcommitted, IllegalState, OffsetMismatch, ModelUnavailable,
│   PromiseNotPossible, FrameMismatch, NothingToSimulate, ApplicationInUse, PipelineNotPossible
├── BadInput: BadName, BadTensor, BadRegion, BadMedia, BadMetadata, BadQuota, BadModel, BadArchive, BadSeries,
│   BadPeriod, BadEdit, BadEncoding, BadReceiver, SloNotKept, BadPipeline (PipelineCycle, UnknownStage, StageMismatch,
│   TooManyStages, SloTooSmall)
├── TooLarge
├── NotAllowed: MissingKey, WrongKey, Forbidden, NotOnBox, ForeignOrigin, TlsRequired
├── LimitReached: QuotaExceeded, QueueFull, Overloaded, TooManyDeferred, TooManyFailedKeys, TooManyConnections,
│   CreditExceeded, TooManySessions, TooManySimulations, TooManyTests
├── Unavailable: Busy, ResultNotKept, OutOfMemory (CeilingReached, NoRoomToRun), LoadFailed (ContentDamaged),
│   ProcessorLost, VariantQuarantined, OutOfFiles, ProcessorEmulated, NotConfined, ShuttingDown,
│   StorageFull, StorageBusy, StorageFailed
├── DeadlineExceeded
├── FrameDropped
└── RunFailed (RunRefused, RunCrashed, RunStopped)

Import them from here; one module holds one branch of the tree, or what goes wrong with one noun. A class says itself
what it means to a caller: its slug, status and title (`root.py`).
"""

from appliance.domain.errors.access import (
    Forbidden,
    ForeignOrigin,
    MissingKey,
    NotAllowed,
    NotOnBox,
    TlsRequired,
    WrongKey,
)
from appliance.domain.errors.conflicts import (
    AlreadyExists,
    BoxNotEmpty,
    Conflict,
    IllegalState,
    InUse,
    ModelUnavailable,
    NothingToSimulate,
    OffsetMismatch,
    Overcommitted,
)
from appliance.domain.errors.inputs import (
    BadArchive,
    BadEdit,
    BadEncoding,
    BadInput,
    BadMedia,
    BadMetadata,
    BadModel,
    BadName,
    BadPeriod,
    BadQuota,
    BadReceiver,
    BadRegion,
    BadSeries,
    BadTensor,
    SloNotKept,
    TooLarge,
)
from appliance.domain.errors.limits import (
    LimitReached,
    Overloaded,
    QueueFull,
    QuotaExceeded,
    TooManyConnections,
    TooManyDeferred,
    TooManyFailedKeys,
    TooManySimulations,
    TooManyTests,
)
from appliance.domain.errors.memory import Blocker, CeilingReached, NoRoomToRun, OutOfMemory, processes_beside
from appliance.domain.errors.missing import (
    NotFound,
    SharedMemoryOff,
    UnknownApplication,
    UnknownBackup,
    UnknownDecision,
    UnknownJob,
    UnknownKey,
    UnknownModel,
    UnknownReceiver,
    UnknownRegion,
    UnknownRequest,
    UnknownSession,
    UnknownSimulation,
    UnknownTenant,
    UnknownUpload,
    UnknownVariant,
)
from appliance.domain.errors.pipelines import (
    ApplicationInUse,
    BadPipeline,
    PipelineCycle,
    PipelineNotPossible,
    SloTooSmall,
    StageMismatch,
    TooManyStages,
    UnknownClient,
    UnknownPipeline,
    UnknownStage,
)
from appliance.domain.errors.root import ERRORS, ApplianceError
from appliance.domain.errors.runs import DeadlineExceeded, RunCrashed, RunFailed, RunRefused, RunStopped
from appliance.domain.errors.sessions import (
    CreditExceeded,
    FrameDropped,
    FrameMismatch,
    PromiseNotPossible,
    TooManySessions,
)
from appliance.domain.errors.storage import StorageBusy, StorageFailed, StorageFull
from appliance.domain.errors.unavailable import (
    Busy,
    ContentDamaged,
    LoadFailed,
    NotConfined,
    OutOfFiles,
    ProcessorEmulated,
    ProcessorLost,
    ResultNotKept,
    ShuttingDown,
    Unavailable,
    VariantQuarantined,
)
