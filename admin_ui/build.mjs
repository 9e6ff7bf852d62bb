// `make ui`: types out of the gateway's document, checks, the bundle. Run with Node 22 or newer.
// Assets of builds before stay for two weeks, so that pages that are open still find theirs after a release.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, unlinkSync, utimesSync } from "node:fs";
import { join } from "node:path";

const KEPT_MS = 14 * 24 * 3600 * 1000;
const ASSETS = "dist/assets";

const run = (program, ...args) =>
  execFileSync(process.execPath, [join("node_modules", program), ...args], { stdio: "inherit" });

run("openapi-typescript/bin/cli.js", "build/openapi.json", "-o", "src/api/schema.ts", "--alphabetize");
run("typescript/bin/tsc", "--noEmit");
run("@biomejs/biome/bin/biome", "check", ".");
run("vite/bin/vite.js", "build", "--logLevel", "warn");

const manifest = JSON.parse(readFileSync("dist/manifest.json", "utf-8"));
const current = new Set(
  Object.values(manifest).flatMap((chunk) => [chunk.file, ...(chunk.css ?? []), ...(chunk.assets ?? [])]),
);
const page = readFileSync("dist/index.html", "utf-8");
for (const name of existsSync(ASSETS) ? readdirSync(ASSETS) : []) {
  const file = join(ASSETS, name);
  if (current.has(`assets/${name}`) || page.includes(name)) {
    utimesSync(file, new Date(), new Date()); // in use until now
  } else if (Date.now() - statSync(file).mtimeMs > KEPT_MS) {
    unlinkSync(file);
  }
}
