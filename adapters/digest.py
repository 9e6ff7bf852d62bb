"""Identity by content. What an adapter is called, who wrote its files and in which order they list things do
not matter."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import BinaryIO, Final

from adapters.manifest import Manifest
from adapters.safetensors_header import Tensor

_CHUNK_BYTES: Final = 1024 * 1024
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def content_digest(manifest: Manifest, weights: Path, base_id: str) -> str:
    """sha256 (64 hex) over the base, and each module's place, rank, effective scale, dtypes and values, in a
    fixed order. Reads the whole file."""
    assert is_digest(base_id)
    hasher = hashlib.sha256()
    _field(hasher, b"motet adapter content/1")
    _field(hasher, bytes.fromhex(base_id))
    with weights.open("rb") as file:
        for module in manifest.modules:
            _field(hasher, f"{module.layer}.{module.site} {module.rank} {module.scale.hex()}".encode())
            for tensor in (module.lora_a, module.lora_b):
                _field(
                    hasher, f"{tensor.dtype} {tensor.shape[0]}x{tensor.shape[1]} {tensor.num_bytes}".encode()
                )
                _values(hasher, file, tensor)
    return hasher.hexdigest()


def artefact_id(owner: str, content_digest: str) -> str:
    """sha256 (64 hex) of owner and content: two owners of equal bytes share neither an id nor a file."""
    assert is_digest(content_digest)
    hasher = hashlib.sha256()
    _field(hasher, b"motet artefact/1")
    _field(hasher, owner.encode())
    _field(hasher, bytes.fromhex(content_digest))
    return hasher.hexdigest()


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _field(hasher: hashlib._Hash, value: bytes) -> None:
    """Length first, so that no two lists of fields run together into the same bytes."""
    hasher.update(len(value).to_bytes(8, "little"))
    hasher.update(value)


def _values(hasher: hashlib._Hash, file: BinaryIO, tensor: Tensor) -> None:
    file.seek(tensor.offset)
    left = tensor.num_bytes
    while left:
        chunk = file.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise EOFError(f"{file.name} became shorter while it was read")
        hasher.update(chunk)
        left -= len(chunk)
