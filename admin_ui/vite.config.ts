import { readFileSync } from "node:fs";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** A small classic script that blocks, as a hashed asset: it sets the colour scheme before the first paint. */
function colorScheme(): Plugin {
  let reference = "";
  return {
    name: "color-scheme",
    apply: "build",
    buildStart() {
      const source = readFileSync("src/color-scheme.js", "utf-8");
      reference = this.emitFile({ type: "asset", name: "color-scheme.js", source });
    },
    transformIndexHtml: {
      order: "post",
      handler() {
        const src = `./${this.getFileName(reference)}`;
        return [{ tag: "script", attrs: { src }, injectTo: "head-prepend" }];
      },
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [react(), colorScheme()],
  build: {
    target: ["chrome111", "firefox114", "safari16.4"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    emptyOutDir: false, // what older pages still ask for stays for a while: see build.mjs
    manifest: "manifest.json",
    reportCompressedSize: false,
  },
  html: { cspNonce: "__MOTET_NONCE__" },
});
