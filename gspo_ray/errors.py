"""Errors a user can meet. All are picklable: they cross Ray process borders as they are.

`UserError` is what the person who started the run can mend (a config key, a data line, a missing
folder, too few CPUs). The command line prints its message alone and exits with code 2.
Subclasses take one message and define no `__init__`, which is what keeps them picklable.
"""


class GspoRayError(Exception):
    """Base of every error raised on purpose by this package."""


class UserError(GspoRayError):
    """Something in the input or the environment; the message names it and says how to mend it."""


class ConfigError(UserError, ValueError):
    """A config key that is unknown, out of range, or does not fit another one."""


class DataError(UserError, ValueError):
    """A data file that is missing, empty, or has a row that cannot be read (file and line given)."""


class ModelError(UserError, ValueError):
    """A base model that cannot be found or does not fit the run."""


class ResourceError(UserError, RuntimeError):
    """The cluster does not have what the config asks for."""


class CheckpointError(UserError, RuntimeError):
    """A checkpoint that is missing, incomplete, or was made by another run."""


class EngineError(GspoRayError, RuntimeError):
    """A sampler engine failed, or does not hold the weights that it should hold."""


class RewardError(GspoRayError, RuntimeError):
    """The reward pool itself failed (a single hard answer never raises: it is an outcome)."""


class LearnerError(GspoRayError, RuntimeError):
    """The learner met numbers that it must not train on, or failed."""
