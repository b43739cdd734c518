"""Uses the generated client for operations that the official clients lack. Prints one line for each answer."""

import asyncio
import os
from uuid import UUID

from sandkeep_client.api.billing import get_usage
from sandkeep_client.api.events import list_events
from sandkeep_client.api.pools import put_pool
from sandkeep_client.api.sandboxes import create_sandbox, create_sandbox_preview, get_by_name
from sandkeep_client.api.snapshots import list_snapshots
from sandkeep_client.connection import SandkeepError, connect, entries, result
from sandkeep_client.models import CreatePreviewRequest, CreateSandboxRequest, PutPoolRequest

client = connect(os.environ["SANDKEEP_URL"], os.environ["SANDKEEP_API_KEY"])
image = {"type": "oci", "reference": "busybox"}

body = CreateSandboxRequest.from_dict({"name": "box", "image": image})
sandbox = result(create_sandbox.sync_detailed(client=client, body=body, start=True, wait_for="running"))
print("sandbox", sandbox.status)
print("usage", type(result(get_usage.sync_detailed(client=client)).total_cents).__name__)
types = {event.event_type for event in entries(list_events.sync_detailed, client=client, limit=1)}
print("events", len(types) > 2)
preview = CreatePreviewRequest.from_dict({"port": 8000})
print("preview", result(create_sandbox_preview.sync_detailed(UUID(str(sandbox.id)), client=client, body=preview)).port)
pool = PutPoolRequest.from_dict({"image": image, "size": 0})
print("pool", result(put_pool.sync_detailed("warm", client=client, body=pool)).name)
print("snapshots", len(result(asyncio.run(list_snapshots.asyncio_detailed(client=client))).data))
try:
    result(get_by_name.sync_detailed("none", client=client))
except SandkeepError as error:
    print("refusal", error.status, error.code, error.request_id is not None)
