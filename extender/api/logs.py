"""The log format of all programs: one JSON object a line, the event a past-tense phrase."""

import logging
import sys

import orjson
import structlog


def configure() -> None:
    """Send structlog's lines of level info and above to standard error as JSON."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_encode),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def _encode(event: object, **_: object) -> str:
    return orjson.dumps(event, default=str).decode()
