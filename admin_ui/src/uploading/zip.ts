/** The directory at the end of a zip, read without the rest; what it holds is unpacked by the gateway. */
interface ZipEntry {
  path: string;
  bytes: number;
  text: () => Promise<string>;
}

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const END_BYTES = 22;
const ENTRY_BYTES = 46;
const HEAD_BYTES = 30;
const MAX_COMMENT = 65_535;
const STORED = 0;

/** null: it is no zip, or one that is too large for this reader, which the gateway then looks at alone. */
export async function readZip(file: Blob): Promise<ZipEntry[] | null> {
  const start = Math.max(0, file.size - END_BYTES - MAX_COMMENT);
  const tail = new DataView(await file.slice(start).arrayBuffer());
  let at = tail.byteLength - END_BYTES;
  while (at >= 0 && tail.getUint32(at, true) !== END) {
    at -= 1;
  }
  if (at < 0) {
    return null;
  }
  const [count, size, offset] = [
    tail.getUint16(at + 10, true),
    tail.getUint32(at + 12, true),
    tail.getUint32(at + 16, true),
  ];
  return entries(file, new DataView(await file.slice(offset, offset + size).arrayBuffer()), count);
}

function entries(file: Blob, directory: DataView, count: number): ZipEntry[] | null {
  const found: ZipEntry[] = [];
  let at = 0;
  for (let number = 0; number < count; number += 1) {
    if (at + ENTRY_BYTES > directory.byteLength || directory.getUint32(at, true) !== ENTRY) {
      return null;
    }
    const [method, packed, bytes, name, extra, comment, head] = [
      directory.getUint16(at + 10, true),
      directory.getUint32(at + 20, true),
      directory.getUint32(at + 24, true),
      directory.getUint16(at + 28, true),
      directory.getUint16(at + 30, true),
      directory.getUint16(at + 32, true),
      directory.getUint32(at + 42, true),
    ];
    const path = new TextDecoder().decode(new Uint8Array(directory.buffer, at + ENTRY_BYTES, name));
    if (!path.endsWith("/")) {
      found.push({ path, bytes, text: () => content(file, head, packed, method) });
    }
    at += ENTRY_BYTES + name + extra + comment;
  }
  return found;
}

async function content(file: Blob, head: number, packed: number, method: number): Promise<string> {
  const local = new DataView(await file.slice(head, head + HEAD_BYTES).arrayBuffer());
  const start = head + HEAD_BYTES + local.getUint16(26, true) + local.getUint16(28, true);
  const raw = file.slice(start, start + packed);
  if (method === STORED) {
    return raw.text();
  }
  return new Response(raw.stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}
