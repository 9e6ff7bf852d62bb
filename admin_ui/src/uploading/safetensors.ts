import { bytesText } from "../parts/figures";
import { type Refusal, shown } from "./refusal";

export const WEIGHTS = "adapter_model.safetensors";
const DTYPES = ["F32", "F16", "BF16"];
const MAX_HEADER_BYTES = 16 * 1024 * 1024;
const LENGTH_BYTES = 8;
const SAVE_AGAIN = "Save it with save_pretrained(folder, safe_serialization=True) of PEFT.";

interface Entry {
  dtype?: unknown;
  data_offsets?: unknown;
}

/** What the head of a tensors' file says against it; of the tensors themselves nothing is read here. */
export async function checkWeights(file: Blob): Promise<Refusal[]> {
  const start = new Uint8Array(await file.slice(0, 64).arrayBuffer());
  if (beginsWith(start, "version https://git-lfs")) {
    return [refusal("a Git LFS pointer", "the file it points to", "Fetch it with `git lfs pull`.")];
  }
  if (
    beginsWith(start, "PK\x03\x04") ||
    (start[0] === 0x80 && (start[1] ?? 0) >= 2 && (start[1] ?? 0) <= 5)
  ) {
    return [refusal("a pickle (torch.save)", "safetensors: pickles are never read", SAVE_AGAIN)];
  }
  const length =
    start.length < LENGTH_BYTES ? null : Number(new DataView(start.buffer).getBigUint64(0, true));
  if (length === null || start[LENGTH_BYTES] !== "{".charCodeAt(0)) {
    return [refusal("no safetensors file", "safetensors", SAVE_AGAIN)];
  }
  if (length > Math.min(MAX_HEADER_BYTES, file.size - LENGTH_BYTES)) {
    return [cutOff(file.size, `a header of ${bytesText(length)}`)];
  }
  return checkHeader(
    await file.slice(LENGTH_BYTES, LENGTH_BYTES + length).text(),
    file.size - LENGTH_BYTES - length,
  );
}

function checkHeader(text: string, dataBytes: number): Refusal[] {
  let header: Record<string, Entry>;
  try {
    header = JSON.parse(text) as Record<string, Entry>;
  } catch {
    return [refusal("a header that is no JSON", "safetensors", SAVE_AGAIN)];
  }
  const tensors = Object.entries(header).filter(([name]) => name !== "__metadata__");
  if (tensors.length === 0) {
    return [refusal("no tensors", "the factors of a LoRA", SAVE_AGAIN)];
  }
  const end = Math.max(
    ...tensors.map(([, entry]) => (Array.isArray(entry.data_offsets) ? Number(entry.data_offsets[1]) : 0)),
  );
  if (end !== dataBytes) {
    return [cutOff(dataBytes, `tensors up to byte ${end}`)];
  }
  const odd = tensors.find(([, { dtype }]) => !DTYPES.includes(String(dtype)));
  return odd === undefined
    ? []
    : [
        refusal(
          `${shown(odd[0])} of type ${shown(odd[1].dtype)}`,
          DTYPES.join(", "),
          "Save it in bf16, not quantized.",
        ),
      ];
}

function cutOff(has: number, wants: string): Refusal {
  return refusal(
    `${bytesText(has)}, of which the head says: ${wants}`,
    "the whole file",
    "It is not complete: copy or download it again.",
  );
}

function refusal(found: string, allowed: string, fix: string): Refusal {
  return { place: WEIGHTS, found, allowed, fix };
}

function beginsWith(bytes: Uint8Array, text: string): boolean {
  return [...text].every((character, at) => bytes[at] === character.charCodeAt(0));
}
