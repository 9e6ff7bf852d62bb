import { Table } from "@mantine/core";
import type { ReactNode } from "react";

interface Props {
  minWidth: number;
  what: string;
  children: ReactNode;
}

/** A table that scrolls within its page, also by keys where nothing in it takes the focus. */
export function Scrolls({ minWidth, what, children }: Props) {
  const viewportProps = { tabIndex: 0, role: "region", "aria-label": what };
  return (
    <Table.ScrollContainer minWidth={minWidth} scrollAreaProps={{ viewportProps }}>
      {children}
    </Table.ScrollContainer>
  );
}
