"""What `motet up` prints when everything answers: where, as whom, and three commands that show something."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Sequence

from deploy.local.admin_login import AdminLogin
from deploy.local.demo_tenants import DemoTenant
from deploy.local.processes import Plan

# For a machine without curl: the same request from the standard library; a refusal is printed, not raised.
PYTHON_REQUEST = """
import sys, urllib.error, urllib.request
url, key, body = sys.argv[1:]
headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers))
except urllib.error.HTTPError as error:
    answer = error
for line in answer:
    print(line.decode(), end="", flush=True)
print()
"""


def welcome(plan: Plan, admin: AdminLogin, tenants: Sequence[DemoTenant], seconds: float) -> str:
    lines = [
        "",
        f"Motet is ready at {plan.public_url} after {seconds:.0f} s. Ctrl-C stops it.",
        f"State and logs: {plan.home.root}; all of the below: {plan.home.demo}",
        "",
        f"  admin    {plan.public_url}/admin/  in a browser",
        f"           log in as {admin.email}  password {admin.password}",
        f"           token {admin.token}",
    ]
    for tenant in tenants:
        lines.append(f"  {tenant.name:<8} key {tenant.api_key}  adapters {', '.join(tenant.adapters)}")
    if tenants:
        lines += ["", "Three things to paste:", *_commands(plan, {tenant.name: tenant for tenant in tenants})]
    return "\n".join(lines) + "\n"


def _commands(plan: Plan, tenants: dict[str, DemoTenant]) -> list[str]:
    acme, globex = tenants["acme"].api_key, tenants["globex"].api_key
    review = "The food was cold and the waiter was rude."
    return [
        "  # acme's own pirate answers",
        f"  {_request(plan, acme, 'pirate', 'What is the capital of France?')}",
        "  # another of acme's adapters over the same base, streamed as it is made",
        f"  {_request(plan, acme, 'sentiment-json', review, stream=True)}",
        "  # globex can neither use nor detect what is acme's: 404",
        f"  {_request(plan, globex, 'pirate', 'What is the capital of France?')}",
    ]


def _request(plan: Plan, key: str, model: str, text: str, *, stream: bool = False) -> str:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 48,
        "temperature": 0,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    url, content = f"{plan.public_url}/v1/chat/completions", shlex.quote(json.dumps(body))
    if shutil.which("curl") is None:
        program = shlex.quote(PYTHON_REQUEST.strip())
        return f"{shlex.quote(sys.executable)} -c {program} {url} {key} {content}"
    headers = f"-H 'authorization: Bearer {key}' -H 'content-type: application/json'"
    return f"curl -s{'N' if stream else ''} -w '\\n' {url} {headers} -d {content}"
