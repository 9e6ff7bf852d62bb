"""A model's chat template, rendered as transformers renders it, in jinja2's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateRefused(Exception):
    """The template says of itself that it can't render these messages (wrong order of roles, say)."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what to train on; when prompting, its body stands as it is."""

    tags = {"generation"}  # noqa: RUF012  (jinja2's own way to declare them)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str) -> jinja2.Template:
    """Raises `jinja2.TemplateSyntaxError`."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def chat_template_source(folder: Path) -> str | None:
    """chat_template.jinja wins over the template in tokenizer_config.json; None = the model has none."""
    own_file = folder / "chat_template.jinja"
    if own_file.exists():
        return own_file.read_text(encoding="utf-8")
    template = tokenizer_config(folder).get("chat_template")
    if isinstance(template, list):  # several, by name
        template = next((item["template"] for item in template if item.get("name") == "default"), None)
    return template


def special_tokens(folder: Path) -> dict[str, str]:
    """The named tokens a template may use: `bos_token`, `eos_token` and so on."""
    tokens = {}
    for key, value in tokenizer_config(folder).items():
        content = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(content, str):
            tokens[key] = content
    return tokens


def tokenizer_config(folder: Path) -> Mapping[str, Any]:
    path = folder / "tokenizer_config.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Any]) if path.exists() else {}


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without jinja2's HTML escapes, which would change the prompt."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise TemplateRefused(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
