"""`python -m gateway.write_openapi FILE`: writes the OpenAPI document without starting anything. The admin
UI's types are made of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.app import openapi_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where to; left alone when it says the same already")
    file: Path = parser.parse_args().file
    document = openapi_bytes()
    if not file.exists() or file.read_bytes() != document:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(document)


if __name__ == "__main__":
    main()
