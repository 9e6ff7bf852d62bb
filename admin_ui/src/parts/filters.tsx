import { TextInput, Tooltip } from "@mantine/core";
import { useEffect, useRef, useState } from "react";

const WAIT_MS = 250;

/** A text that filters a list. What is typed is its own until it rests; an address that changes elsewhere (back,
 * forward) is taken over only when it is another than the one that was sent. */
export function TextFilter({
  label,
  value,
  onChange,
  placeholder,
}: {
  label: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
  placeholder?: string;
}) {
  const [typed, setTyped] = useState(value ?? "");
  const sent = useRef(value ?? "");
  const send = useRef(onChange);
  send.current = onChange;
  const field = useRef<HTMLInputElement>(null);
  const [first, setFirst] = useState(false);

  useEffect(() => setFirst(document.querySelector("#main input[data-search]") === field.current), []);

  useEffect(() => {
    if ((value ?? "") !== sent.current) {
      sent.current = value ?? "";
      setTyped(sent.current);
    }
  }, [value]);

  useEffect(() => {
    if (typed === sent.current) {
      return;
    }
    const timer = setTimeout(() => {
      sent.current = typed;
      send.current(typed === "" ? undefined : typed);
    }, WAIT_MS);
    return () => clearTimeout(timer);
  }, [typed]);

  return (
    <Tooltip label="Press / to come here" disabled={!first} openDelay={400}>
      <TextInput
        ref={field}
        label={label}
        placeholder={placeholder}
        data-search
        value={typed}
        onChange={(event) => setTyped(event.currentTarget.value)}
        w={{ base: "100%", xs: 220 }}
      />
    </Tooltip>
  );
}
