"""An upload as simple as can be, for tests that need one to be there."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from litestar.testing import TestClient

from gateway.catalog.parts import CONFIG_PART


def begin_upload(client: TestClient[Any], headers: Mapping[str, str]) -> str:
    """The id of one of two bytes, of which none has come."""
    told = f"filename {base64.b64encode(CONFIG_PART.encode()).decode()}"
    wanted = {"tus-resumable": "1.0.0", "upload-length": "2", "upload-metadata": told}
    made = client.post("/v1/uploads", headers={**headers, **wanted})
    assert made.status_code == 201, made.text
    return str(made.headers["location"].rpartition("/")[2])
