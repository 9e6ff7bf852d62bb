import type { ApiCall } from "../parts/page";

const MONTH = new Date().toISOString().slice(0, 7);

/** How what a tab of a tenant shows and does is got without it. */
export function callsOf(tab: string, tenant: { id: string }): ApiCall[] {
  const root = `/api/v1/tenants/${tenant.id}`;
  const calls: Record<string, ApiCall[]> = {
    overview: [
      { method: "GET", path: root },
      { method: "GET", path: `${root}/limits/now` },
      { method: "GET", path: `${root}/metrics/requests?window=1h` },
      { method: "GET", path: `${root}/requests?outcome=refused` },
      { method: "POST", path: `${root}/suspend`, body: { reason: "unpaid" } },
    ],
    adapters: [
      { method: "GET", path: `${root}/adapters` },
      { method: "GET", path: `${root}/shared-adapters` },
      { method: "GET", path: `${root}/metrics/requests?window=1h&by=adapter` },
      { method: "POST", path: `${root}/uploads` },
    ],
    requests: [
      { method: "GET", path: `${root}/requests?outcome=refused` },
      { method: "GET", path: `${root}/requests/REQUEST` },
    ],
    usage: [
      { method: "GET", path: `${root}/usage/summary?by=adapter&period=last_31_days` },
      { method: "GET", path: `${root}/usage/shared-adapters?period=last_31_days` },
    ],
    billing: [
      { method: "GET", path: `${root}/billing/periods` },
      { method: "GET", path: `${root}/billing/statement?month=${MONTH}` },
      { method: "GET", path: `${root}/billing/exports` },
      { method: "POST", path: `${root}/billing/exports`, body: { month: MONTH } },
    ],
    playground: [
      { method: "GET", path: `${root}/models` },
      { method: "POST", path: `${root}/keys`, body: { name: "playground", scopes: ["inference"] } },
      { method: "GET", path: `${root}/usage/REQUEST/receipt` },
      { method: "DELETE", path: `${root}/keys/KEY` },
    ],
    keys: [
      { method: "GET", path: `${root}/keys` },
      { method: "POST", path: `${root}/keys`, body: { name: "ci" } },
      { method: "PATCH", path: `${root}/keys/KEY`, body: { allowed_models: ["triage"] } },
      { method: "PATCH", path: `${root}/keys/KEY/limits`, body: { tokens_per_minute: 20000 } },
      { method: "POST", path: `${root}/keys/KEY/rotate`, body: { overlap_s: 86400 } },
    ],
    members: [
      { method: "GET", path: `${root}/members` },
      { method: "POST", path: `${root}/members`, body: { email: "ada@example.com", role: "ROLE" } },
      { method: "PATCH", path: `${root}/members/MEMBER`, body: { role: "ROLE" } },
      { method: "POST", path: `${root}/members/MEMBER/tokens`, body: { name: "ci" } },
    ],
    webhooks: [
      { method: "GET", path: `${root}/webhooks` },
      { method: "POST", path: `${root}/webhooks`, body: { url: "https://hooks.example.com/motet" } },
      { method: "POST", path: `${root}/webhooks/WEBHOOK/ping` },
      { method: "GET", path: `${root}/webhooks/WEBHOOK/deliveries` },
    ],
    limits: [
      { method: "GET", path: `${root}/limits` },
      { method: "PATCH", path: `${root}/limits`, body: { requests_per_minute: 600 } },
    ],
    audit: [{ method: "GET", path: `${root}/audit?action=api_key.` }],
    settings: [
      { method: "GET", path: `${root}/retention` },
      { method: "PATCH", path: `${root}/retention`, body: { days: { ended_keys: 30 } } },
      { method: "PATCH", path: `${root}/caches`, body: { response_cache: "greedy" } },
      { method: "DELETE", path: `${root}/caches` },
      { method: "POST", path: `${root}/offboarding`, body: { confirm: "NAME", grace_h: 168 } },
    ],
  };
  return calls[tab] ?? calls.overview ?? [];
}
