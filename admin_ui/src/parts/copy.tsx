import { Button } from "@mantine/core";
import { useState } from "react";

const SAID_MS = 2_000;

/** Also where the page came over plain http, which has no clipboard of its own. */
export function CopyButton({ text, label }: { text: string | (() => string); label: string }) {
  const [said, setSaid] = useState<string | null>(null);
  const copy = async () => {
    setSaid(
      (await copied(typeof text === "string" ? text : text())) ? "Copied" : "Select it and copy by hand",
    );
    setTimeout(() => setSaid(null), SAID_MS);
  };
  return (
    <Button size="xs" variant="default" onClick={copy} aria-live="polite">
      {said ?? label}
    </Button>
  );
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

function copiedBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "off-screen";
  const parent = document.activeElement?.parentElement ?? document.body; // within a dialog, which holds the focus
  parent.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    area.remove();
  }
}
