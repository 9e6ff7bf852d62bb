import { bytesText } from "../parts/figures";
import { CONFIG, checkConfig } from "./peft-config";
import type { Refusal } from "./refusal";
import { checkWeights, WEIGHTS } from "./safetensors";
import { readZip } from "./zip";

export const ACCEPTANCE = "acceptance.json";
const SMALL_BYTES = 256 * 1024; // most of the config, and of the prompts
const OURS = [CONFIG, WEIGHTS, ACCEPTANCE];

/** A file as it was chosen: where it lay, from what was dropped on. */
export interface Chosen {
  path: string;
  file: File;
}

export interface Checked {
  /** What is sent, by the names of the API; nothing where something is refused. */
  files: File[];
  isZip: boolean;
  leftOut: string[];
  refusals: Refusal[];
  /** The folder's or the zip's name, which may become the adapter's. */
  name: string;
}

/** Names, sizes and heads, before anything is sent. `mostBytes`: what the gateway takes in one upload. */
export async function check(chosen: Chosen[], mostBytes: number | null): Promise<Checked> {
  const zip = chosen.find(({ path }) => path.toLowerCase().endsWith(".zip"));
  const checked = zip === undefined ? await checkFolder(chosen) : await checkZip(zip, chosen.length);
  const large = checked.files.filter((file) => mostBytes !== null && file.size > mostBytes);
  const refusals = [
    ...checked.refusals,
    ...large.map((file) => tooLarge(file.name, file.size, mostBytes ?? 0)),
  ];
  return { ...checked, refusals, files: refusals.length > 0 ? [] : checked.files };
}

async function checkFolder(chosen: Chosen[]): Promise<Checked> {
  const top = commonFolder(chosen.map(({ path }) => path));
  const at = new Map(chosen.map(({ path, file }) => [path.slice(top.length), file]));
  const found = OURS.flatMap((name) => at.get(name) ?? []);
  const leftOut = [...at.keys()].filter((path) => !OURS.includes(path)).sort();
  const name = top.split("/").filter(Boolean).at(-1) ?? "";
  const refusals = missing([...at.keys()], top);
  const [config, weights] = [at.get(CONFIG), at.get(WEIGHTS)];
  if (config !== undefined) {
    refusals.push(...(await checkSmall(CONFIG, config.size, () => config.text(), checkConfig)));
  }
  const prompts = at.get(ACCEPTANCE);
  if (prompts !== undefined) {
    refusals.push(...(await checkSmall(ACCEPTANCE, prompts.size, () => prompts.text(), checkJson)));
  }
  if (weights !== undefined) {
    refusals.push(...(await checkWeights(weights)));
  }
  return { files: found, isZip: false, leftOut, refusals, name };
}

async function checkZip({ file }: Chosen, howMany: number): Promise<Checked> {
  const checked = { files: [file], isZip: true, leftOut: [], name: file.name.replace(/\.zip$/i, "") };
  if (howMany > 1) {
    return { ...checked, refusals: [alone(howMany)] };
  }
  const entries = await readZip(file);
  if (entries === null) {
    return { ...checked, refusals: [noZip(file.name)] };
  }
  const top = commonFolder(entries.map(({ path }) => path));
  const names = entries.map(({ path }) => path.slice(top.length));
  const refusals = missing(names, top);
  const odd = names.filter((name) => !OURS.includes(name));
  if (refusals.length === 0 && odd.length > 0) {
    refusals.push(onlyOurs(odd));
  }
  const config = entries.find(({ path }) => path.slice(top.length) === CONFIG);
  if (config !== undefined) {
    refusals.push(...(await checkSmall(CONFIG, config.bytes, config.text, checkConfig)));
  }
  return { ...checked, refusals };
}

async function checkSmall(
  name: string,
  bytes: number,
  read: () => Promise<string>,
  checkText: (text: string) => Refusal[],
): Promise<Refusal[]> {
  return bytes > SMALL_BYTES ? [tooLarge(name, bytes, SMALL_BYTES)] : checkText(await read());
}

function checkJson(text: string): Refusal[] {
  try {
    JSON.parse(text);
    return [];
  } catch (error) {
    return [
      {
        place: ACCEPTANCE,
        found: error instanceof Error ? error.message : "no JSON",
        allowed: "a JSON object with prompts, or a list of them",
        fix: "Mend it, or leave it out and write the prompts here.",
      },
    ];
  }
}

/** Of all the files: the one folder that was dropped, with its slash; "" where there is none. */
function commonFolder(paths: string[]): string {
  const first = paths[0]?.split("/").slice(0, -1)[0];
  return first !== undefined && paths.every((path) => path.startsWith(`${first}/`)) ? `${first}/` : "";
}

function missing(names: string[], top: string): Refusal[] {
  return [CONFIG, WEIGHTS].flatMap((name) => (names.includes(name) ? [] : [absent(name, names, top)]));
}

function absent(name: string, names: string[], top: string): Refusal {
  const deeper = names.find((path) => path.endsWith(`/${name}`));
  if (deeper !== undefined) {
    const folder = deeper.slice(0, -name.length);
    return {
      place: name,
      found: `${name} is inside ${folder}`,
      allowed: `at the top of ${top || "what is chosen"}`,
      fix: `Choose the folder ${folder.replace(/\/$/, "")} itself.`,
    };
  }
  const other = name === WEIGHTS ? otherWeights(names) : undefined;
  return {
    place: name,
    found: other ?? `no ${name} among ${names.length} ${names.length === 1 ? "file" : "files"}`,
    allowed: `${CONFIG} and ${WEIGHTS}`,
    fix:
      other === undefined
        ? "Choose the folder that save_pretrained of PEFT wrote, or all its files."
        : "Save it with save_pretrained(folder, safe_serialization=True) of PEFT, in one file.",
  };
}

function otherWeights(names: string[]): string | undefined {
  return names.find((name) =>
    /^(adapter_model|model|pytorch_model).*\.(bin|pt|pth|safetensors|gguf)$/.test(name),
  );
}

function tooLarge(name: string, bytes: number, most: number): Refusal {
  return {
    place: name,
    found: bytesText(bytes),
    allowed: `at most ${bytesText(most)}, which this gateway takes`,
    fix: "Train with a lower rank or fewer targets, or have the operator of this installation raise the limit.",
  };
}

function alone(howMany: number): Refusal {
  return {
    place: "zip",
    found: `a zip among ${howMany} files`,
    allowed: "a zip alone",
    fix: "Choose the zip only.",
  };
}

function noZip(name: string): Refusal {
  return { place: name, found: "no zip that can be read", allowed: "a zip", fix: "Zip the folder again." };
}

function onlyOurs(odd: string[]): Refusal {
  return {
    place: "zip",
    found: odd.slice(0, 3).join(", ") + (odd.length > 3 ? ` and ${odd.length - 3} more` : ""),
    allowed: `only ${OURS.join(", ")}`,
    fix: "Take the others out of the zip, or choose the folder instead: there they are left out.",
  };
}
