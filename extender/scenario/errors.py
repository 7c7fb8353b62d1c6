"""The error of scenario files."""


class ScenarioError(Exception):
    """An invalid file or case; the message is one sentence that names it."""
