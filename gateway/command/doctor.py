"""`motet doctor`: whether people reach the admin UI under the URL that the gateway was told, and what a
provider has to know. It looks from outside, as a browser does, and at the settings where it finds them."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer
from pydantic import ValidationError

from gateway.command.access import Access
from gateway.command.options import AsJson
from gateway.command.output import says_why
from gateway.config import Settings
from gateway.oidc.settings import providers_of, redirect_uri
from gateway.public_url import PublicUrl

TIMEOUT_S: Final = 10.0
MAX_BYTES: Final = 1024 * 1024
_ASSET = re.compile(rb'"([^"]*)(/admin/assets/[^"]+\.js)"')


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    said: str
    good: bool = True


@says_why
def doctor(
    url: Annotated[str | None, typer.Option(help="As browsers write it. Default: MOTET_PUBLIC_URL.")] = None,
    insecure: Annotated[bool, typer.Option(help="Take a certificate that nobody vouches for.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find out why people can't reach the admin UI, or log in. Code 1 when something is wrong."""
    settings = _settings()
    known = settings.public_url if settings else Access.gather(None, None, None).base_url
    wanted = (url or known).rstrip("/")
    findings = [*_told(settings), *_served(wanted, insecure)]
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        for each in findings:
            typer.echo(f"{'ok   ' if each.good else 'WRONG'}  {each.what}: {each.said}")
    if not all(each.good for each in findings):
        raise typer.Exit(1)


def _settings() -> Settings | None:
    try:
        return Settings()
    except ValidationError:  # not where a gateway runs; then only what is served is looked at
        return None


def _told(settings: Settings | None) -> Iterator[Finding]:
    """What the environment says, as a gateway that starts in it would read it."""
    if settings is None:
        yield Finding("settings", "none of a gateway in this environment")
        return
    try:
        public = PublicUrl.parse(settings.public_url)
        providers = providers_of(settings)
    except ValueError as error:
        yield Finding("settings", str(error), good=False)
        return
    if public.is_secure or public.is_local:
        yield Finding("MOTET_PUBLIC_URL", settings.public_url)
    else:
        said = f"{settings.public_url} has no TLS: passwords and sessions go over the network as they are"
        yield Finding("MOTET_PUBLIC_URL", said, good=False)
    for provider in providers:
        yield Finding(f"redirect_uri of {provider.id}", redirect_uri(provider, public))


def _served(url: str, insecure: bool) -> Iterator[Finding]:
    """What a browser finds there."""
    try:
        prefix = PublicUrl.parse(url).prefix
    except ValueError as error:
        yield Finding("URL", str(error), good=False)
        return
    try:
        ready, said, _ = _get(url, "/readyz", insecure)
        yield Finding(f"{url}/readyz", f"{ready} {said.decode(errors='replace').strip()[:500]}", ready == 200)
        status, page, _ = _get(url, "/admin/", insecure)
    except (OSError, http.client.HTTPException) as error:
        yield Finding(url, f"can't be reached: {error}", good=False)
        return
    named = _ASSET.search(page)
    if status != 200 or named is None:
        yield Finding(f"{url}/admin/", f"{status}, and not the admin UI: is it built (make ui)?", good=False)
        return
    told = named[1].decode(errors="replace")
    if told != prefix:
        said_path = f"the gateway was told the path '{told}', and browsers use '{prefix}'"
        yield Finding(f"{url}/admin/", f"{said_path}: set MOTET_PUBLIC_URL to {url}", good=False)
        return
    status, _, kind = _get(url, named[2].decode(errors="replace"), insecure)
    good = status == 200 and kind.startswith("text/javascript")
    yield Finding(f"{url}/admin/", "opens" if good else f"its scripts answer {status} {kind}", good)


def _get(url: str, path: str, insecure: bool) -> tuple[int, bytes, str]:
    """Status, body, and media type; no redirect is followed. Raises OSError and HTTPException."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + path, headers={"accept": "text/html, */*"})
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_BYTES), answer.headers.get("content-type", "")
    finally:
        connection.close()
