"""The one error of scenario files."""


class ScenarioError(Exception):
    """A file or case that can't be used; the message is one sentence that names it."""
