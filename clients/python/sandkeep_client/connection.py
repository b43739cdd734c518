"""The connection, one kind of error, and lists that fetch their pages."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .client import AuthenticatedClient
from .models.error_response import ErrorResponse
from .types import Response, UNSET

T = TypeVar("T")


class SandkeepError(Exception):
    """A refusal of the service."""

    def __init__(self, status: int, code: str, message: str, details: Any, request_id: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details
        self.request_id = request_id


def connect(url: str, key: str, timeout_secs: float = 60) -> AuthenticatedClient:
    """Returns a client for the service at this address, with this API key."""
    return AuthenticatedClient(base_url=url.rstrip("/"), token=key, timeout=timeout_secs)


def result(response: Response[Any]) -> Any:
    """Returns the parsed body of `sync_detailed` or `asyncio_detailed`. A refusal raises a `SandkeepError`."""
    status = int(response.status_code)
    if 200 <= status < 300:
        return response.parsed
    request_id = response.headers.get("x-request-id")
    if isinstance(response.parsed, ErrorResponse):
        error = response.parsed.error
        raise SandkeepError(status, error.code, error.message, error.to_dict().get("details"), request_id)
    # A proxy in front of the service has other bodies.
    text = response.content[:200].decode(errors="replace")
    raise SandkeepError(status, "unknown", f"the server answered {status}: {text}", None, request_id)


def entries(operation: Callable[..., Response[Any]], **arguments: Any) -> Iterator[Any]:
    """Yields the entries of a list, page by page: `entries(list_events.sync_detailed, client=client, limit=100)`."""
    cursor: Any = UNSET
    while True:
        page = result(operation(**arguments, cursor=cursor))
        yield from page.data
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
