/** Where this page was served from: the prefix that a proxy adds, and the nonce of this answer's policy. */
function meta(name: string): string {
  const found = document.querySelector(`meta[name="${name}"]`)?.getAttribute("content") ?? "";
  return found.startsWith("__MOTET_") ? "" : found;
}

export const prefix = meta("motet-prefix");
export const nonce = meta("motet-nonce");
export const uiRoot = `${prefix}/admin`;
