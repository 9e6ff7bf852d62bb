"""HTTP of a tenant's members and their tokens: operators, and the tenant's own administrators."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Response, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, PathParameter

from gateway.access import role_of
from gateway.audit.service import Actor
from gateway.edits import IfMatch, tag_of
from gateway.members.repository import Found
from gateway.members.schemas import (
    ROLES,
    MemberCreate,
    MemberDeleted,
    MemberOut,
    MemberPage,
    MemberPatch,
    PasswordPut,
    TokenCreate,
    TokenCreated,
    TokenOut,
)
from gateway.paging import ById, Order, Page, PageCursor, PageLimit
from gateway.principal import TenantId
from gateway.services import Services

MEMBERS = "/api/v1/tenants/{tenant:uuid}/members"
MEMBER = f"{MEMBERS}/{{member_id:uuid}}"
TOKENS = f"{MEMBER}/tokens"
OLDEST_FIRST: Order[ById] = Order("members", UUID)
NEWEST_FIRST: Order[ById] = Order("member-tokens", UUID)

AnyRequest = Request[Any, Any, Any]
TokenId = Annotated[str, PathParameter(max_length=64, description="Public part of the token.")]


@post(MEMBERS, summary="Make an account a member of a tenant")
async def add_member(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[MemberCreate],
) -> MemberOut:
    """An email without an account gets one. It can't log in until an operator sets its password; a token
    works at once."""
    found = await services.members.add(actor, TenantId(tenant), data)
    return MemberOut.of(found, role_of(request.scope))


@get(MEMBERS, summary="A tenant's members, oldest first")
async def list_members(
    request: AnyRequest,
    services: NamedDependency[Services],
    tenant: FromPath[UUID],
    cursor: PageCursor = None,
    limit: PageLimit = 50,
) -> MemberPage:
    filters = {"tenant": tenant}
    after = OLDEST_FIRST.start(cursor, filters)
    rows = await services.members.page(TenantId(tenant), after, limit + 1)
    cut = OLDEST_FIRST.cut(rows, limit, lambda row: (row.member.id,), filters)
    role = role_of(request.scope)
    return cut.fill(MemberPage, lambda row: MemberOut.of(row, role), roles=ROLES)


@get(MEMBER, summary="One member")
async def get_member(
    request: AnyRequest,
    services: NamedDependency[Services],
    tenant: FromPath[UUID],
    member_id: FromPath[UUID],
) -> Response[MemberOut]:
    return _tagged(request, await services.members.get(TenantId(tenant), member_id))


@patch(MEMBER, summary="Give a member another role")
async def change_member(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    member_id: FromPath[UUID],
    data: JSONBody[MemberPatch],
    if_match: IfMatch = None,
) -> Response[MemberOut]:
    changed = await services.members.change(actor, TenantId(tenant), member_id, data.role, if_match)
    return _tagged(request, changed)


@delete(MEMBER, status_code=200, summary="Remove a member, with the tokens")
async def remove_member(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    member_id: FromPath[UUID],
) -> MemberDeleted:
    await services.members.remove(actor, TenantId(tenant), member_id)
    return MemberDeleted(member_id)


@put(f"{MEMBER}/password", status_code=204, summary="Set the password of a member's account")
async def set_password(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    member_id: FromPath[UUID],
    data: JSONBody[PasswordPut],
) -> Response[None]:
    """Operators only: it opens all tenants of the account."""
    await services.members.set_password(actor, TenantId(tenant), member_id, data.password)
    return Response(None, status_code=204)


@post(TOKENS, summary="Make a bearer token that is good for this membership; shown in this answer only")
async def create_token(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    member_id: FromPath[UUID],
    data: JSONBody[TokenCreate],
) -> TokenCreated:
    token, secret = await services.members.create_token(actor, TenantId(tenant), member_id, data)
    return TokenCreated(TokenOut.of(token, role_of(request.scope)), secret)


@get(TOKENS, summary="A member's tokens, newest first")
async def list_tokens(
    request: AnyRequest,
    services: NamedDependency[Services],
    tenant: FromPath[UUID],
    member_id: FromPath[UUID],
    cursor: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[TokenOut]:
    filters = {"member": member_id}
    after = NEWEST_FIRST.start(cursor, filters)
    rows = await services.members.tokens(TenantId(tenant), member_id, after, limit + 1)
    cut = NEWEST_FIRST.cut(rows, limit, lambda row: (row.id,), filters)
    role = role_of(request.scope)
    return cut.page(lambda token: TokenOut.of(token, role))


@delete(f"{TOKENS}/{{token_id:str}}", status_code=200, summary="Revoke a member's token for good")
async def revoke_token(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    member_id: FromPath[UUID],
    token_id: TokenId,
) -> TokenOut:
    revoked = await services.members.revoke_token(actor, TenantId(tenant), member_id, token_id)
    return TokenOut.of(revoked, role_of(request.scope))


def _tagged(request: AnyRequest, found: Found) -> Response[MemberOut]:
    headers = {"etag": tag_of(MemberPatch.fields_of(found))}
    return Response(MemberOut.of(found, role_of(request.scope)), headers=headers)


handlers = [
    add_member,
    list_members,
    get_member,
    change_member,
    remove_member,
    set_password,
    create_token,
    list_tokens,
    revoke_token,
]
