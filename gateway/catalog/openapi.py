"""What the OpenAPI document can't read off the upload's handler, which takes its body as it arrives."""

from __future__ import annotations

from dataclasses import dataclass

from litestar.openapi import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIFormat

from gateway.catalog.parts import ACCEPTANCE_PART, CONFIG_PART, WEIGHTS_PART

REFUSALS = {
    408: ResponseSpec(None, description="The upload stopped arriving, or took too long."),
    415: ResponseSpec(None, description="The body is neither multipart/form-data nor JSON."),
    422: ResponseSpec(None, description="The files are no adapter that can be served over this base."),
    423: ResponseSpec(None, description="Another request writes or takes one of the uploads."),
    504: ResponseSpec(None, description="The import took too long."),
}


def _body() -> RequestBody:
    file = Schema(type=OpenAPIType.STRING, content_media_type="application/octet-stream")
    form = Schema(
        type=OpenAPIType.OBJECT,
        properties={CONFIG_PART: file, WEIGHTS_PART: file, ACCEPTANCE_PART: file},
        required=[CONFIG_PART, WEIGHTS_PART],
    )
    content = {"multipart/form-data": form, "application/json": _elsewhere()}
    return RequestBody(
        content={kind: OpenAPIMediaType(schema=schema) for kind, schema in content.items()}, required=True
    )


def _elsewhere() -> Schema:
    """Files that are finished uploads, or lie in a folder that they are fetched from."""
    text = Schema(type=OpenAPIType.STRING)
    identifier = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.UUID)
    uploads = Schema(type=OpenAPIType.ARRAY, items=identifier, min_items=1, max_items=3)
    source = Schema(
        type=OpenAPIType.OBJECT, properties={"s3": text, "url": text}, additional_properties=False
    )
    return Schema(
        type=OpenAPIType.OBJECT,
        properties={"uploads": uploads, "source": source},
        additional_properties=False,
    )


@dataclass
class UploadOperation(Operation):
    """An operation whose body is the files of an adapter, or says where they are."""

    def __post_init__(self) -> None:
        self.request_body = _body()
