import { Table } from "@mantine/core";
import type { ReactNode } from "react";

interface Props {
  minWidth: number;
  what: string;
  /** Whether something in each row takes the focus, and scrolls with it: one stop less. */
  hasStops?: boolean;
  children: ReactNode;
}

/** A table that scrolls within its page, also by keys where nothing in it takes the focus. */
export function Scrolls({ minWidth, what, hasStops = false, children }: Props) {
  const viewportProps = hasStops ? {} : { tabIndex: 0, role: "region", "aria-label": what };
  return (
    <Table.ScrollContainer minWidth={minWidth} scrollAreaProps={{ viewportProps }}>
      {children}
    </Table.ScrollContainer>
  );
}
