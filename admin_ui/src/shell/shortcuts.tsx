import { ActionIcon, Kbd, Modal, Table, Tooltip } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { spotlight } from "@mantine/spotlight";
import { useEffect } from "react";
import { Icon } from "../parts/icons";

const KEYS: [string[], string][] = [
  [["Ctrl", "K"], "Find a page, a tenant, an adapter or a key (⌘ K on a Mac)"],
  [["/"], "Go to the search of the list"],
  [["j"], "Next row of the list"],
  [["k"], "Row before"],
  [["Enter"], "Open what the row stands for"],
  [["?"], "This sheet"],
];

/** Single keys, as long as nothing is typed and no dialog is open. */
export function Shortcuts() {
  const [open, sheet] = useDisclosure(false);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        event.defaultPrevented ||
        isTyping(event.target)
      ) {
        return;
      }
      const act = { "/": search, j: () => step(1), k: () => step(-1), "?": sheet.open }[event.key];
      if (act !== undefined && document.querySelector('[role="dialog"]') === null) {
        event.preventDefault();
        act();
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [sheet.open]);
  return (
    <>
      <Tooltip label="Keyboard shortcuts (?)">
        <ActionIcon
          variant="default"
          size="lg"
          aria-label="Keyboard shortcuts"
          onClick={sheet.open}
          visibleFrom="sm"
        >
          <Icon name="keyboard" />
        </ActionIcon>
      </Tooltip>
      <Modal opened={open} onClose={sheet.close} title="Keyboard shortcuts">
        <Table>
          <Table.Tbody>
            {KEYS.map(([keys, what]) => (
              <Table.Tr key={what}>
                <Table.Th scope="row" fw={400}>
                  {keys.map((key) => (
                    <Kbd key={key} mr={4}>
                      {key}
                    </Kbd>
                  ))}
                </Table.Th>
                <Table.Td>{what}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Modal>
    </>
  );
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null
  );
}

/** The first of the page; without one, the finder of all. */
function search(): void {
  const field = document.querySelector<HTMLInputElement>("#main input[data-search]");
  if (field === null) {
    spotlight.open();
  } else {
    field.focus();
    field.select();
  }
}

/** To what a row opens: its first link or button. */
function step(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("#main table tbody tr")]
    .map((row) => row.querySelector<HTMLElement>("a[href], button:not([disabled])"))
    .filter((stop) => stop !== null);
  const at = rows.findIndex((stop) => stop.closest("tr")?.contains(document.activeElement));
  const next = at === -1 ? (by === 1 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next]?.focus();
}
