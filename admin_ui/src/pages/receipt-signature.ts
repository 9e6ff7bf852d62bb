import type { Schemas } from "../api/client";

/** Whether one of the keys gives the `mac` at the end of a receipt (docs/API.md, Receipts). In a secure context. */
export async function isSignedBy(receipt: string, keys: Schemas["ReceiptKeyOut"][]): Promise<boolean> {
  const [said, mac] = receipt.split(";mac=");
  const named = /;key=([^;]+)/.exec(receipt)?.[1];
  const key = keys.find((one) => one.id === named);
  if (said === undefined || mac === undefined || key === undefined) {
    return false;
  }
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const secret = await crypto.subtle.importKey("raw", bytesOf(key.key), algorithm, false, ["verify"]);
  return crypto.subtle.verify("HMAC", secret, bytesOf(mac), new TextEncoder().encode(said));
}

function bytesOf(base64url: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64url.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
