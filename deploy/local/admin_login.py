"""The operator's log-in of one home: made once, registered with the gateway's own bootstrap program."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

from deploy.local.layout import Home
from deploy.local.processes import Plan
from deploy.local.secret_file import load_or_make_secrets, write_private_json
from deploy.local.supervisor import StartFailed

EMAIL = "admin@motet.localhost"
BOOTSTRAP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class AdminLogin:
    email: str
    password: str = field(repr=False)
    token: str = field(repr=False)  # bearer token of /api/v1


def load_or_make_login(home: Home) -> AdminLogin:
    known = load_or_make_secrets(home.secrets, ("admin_password",))
    if "admin_token" not in known:
        from gateway.admin_auth.bootstrap import new_admin_token  # noqa: PLC0415 - heavy, and once a home

        known["admin_token"] = new_admin_token()
        write_private_json(home.secrets, known)
    return AdminLogin(EMAIL, known["admin_password"], known["admin_token"])


def register(login: AdminLogin, plan: Plan) -> None:
    """Make the log-in valid; harmless when it is already. Raises `StartFailed`."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway.admin_auth.bootstrap"],
        env=plan.bootstrap_env(login.email, login.password, login.token),
        capture_output=True,
        text=True,
        check=False,
        timeout=BOOTSTRAP_TIMEOUT_S,
    )
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise StartFailed(f"the admin's log-in could not be made: {reason[0]}")
