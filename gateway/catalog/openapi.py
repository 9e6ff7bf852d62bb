"""What the OpenAPI document can't read off the upload's handler, which takes its body as it arrives."""

from __future__ import annotations

from dataclasses import dataclass

from litestar.openapi import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema

from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART

REFUSALS = {
    408: ResponseSpec(None, description="The upload stopped arriving, or took too long."),
    415: ResponseSpec(None, description="The body is not multipart/form-data."),
    422: ResponseSpec(None, description="The files are no adapter that can be served over this base."),
}


def _body() -> RequestBody:
    file = Schema(type=OpenAPIType.STRING, content_media_type="application/octet-stream")
    form = Schema(
        type=OpenAPIType.OBJECT,
        properties={CONFIG_PART: file, WEIGHTS_PART: file},
        required=[CONFIG_PART, WEIGHTS_PART],
    )
    return RequestBody(content={"multipart/form-data": OpenAPIMediaType(schema=form)}, required=True)


@dataclass
class UploadOperation(Operation):
    """An operation whose body is the two files of an adapter."""

    def __post_init__(self) -> None:
        self.request_body = _body()
