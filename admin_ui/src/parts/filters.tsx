import { NumberInput, TextInput, Tooltip } from "@mantine/core";
import { useEffect, useRef, useState } from "react";

const WAIT_MS = 250;

interface Props {
  label: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
}

/** A text that filters a list. */
export function TextFilter({ label, value, onChange, placeholder }: Props & { placeholder?: string }) {
  const [typed, setTyped] = useSettled(value, onChange);
  const field = useRef<HTMLInputElement>(null);
  const [first, setFirst] = useState(false);

  useEffect(() => setFirst(document.querySelector("#main input[data-search]") === field.current), []);

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

/** A whole number from 0 on. */
export function NumberFilter({
  label,
  value,
  onChange,
}: {
  label: string;
  value: number | undefined;
  onChange: (value: number | undefined) => void;
}) {
  const [typed, setTyped] = useSettled(value?.toString(), (text) =>
    onChange(text === undefined ? undefined : Number(text)),
  );
  return (
    <NumberInput
      label={label}
      min={0}
      allowDecimal={false}
      allowNegative={false}
      hideControls
      value={typed}
      onChange={(next) => setTyped(String(next))}
      w={{ base: "100%", xs: 150 }}
    />
  );
}

const DAY = /^20\d{2}-\d{2}-\d{2}$/; // while a year is typed, it is that of an emperor

/** A day, as `2026-11-30`. */
export function DayField({ label, value, onChange, min, max }: Props & { min?: string; max?: string }) {
  const [typed, setTyped] = useSettled(value, onChange, DAY);
  return (
    <TextInput
      type="date"
      label={label}
      value={typed}
      min={min}
      max={max}
      onChange={(event) => setTyped(event.currentTarget.value)}
    />
  );
}

const ANY = /^/;

/** What is typed is the field's own until it rests; an address that changes elsewhere (back, forward) is taken over
 * only when it is another than the one that was sent. What is not `whole` yet goes nowhere. */
function useSettled(
  value: string | undefined,
  onChange: (value: string | undefined) => void,
  whole = ANY,
): [string, (typed: string) => void] {
  const [typed, setTyped] = useState(value ?? "");
  const sent = useRef(value ?? "");
  const send = useRef(onChange);
  send.current = onChange;

  useEffect(() => {
    if ((value ?? "") !== sent.current) {
      sent.current = value ?? "";
      setTyped(sent.current);
    }
  }, [value]);

  useEffect(() => {
    if (typed === sent.current || (typed !== "" && !whole.test(typed))) {
      return;
    }
    const timer = setTimeout(() => {
      sent.current = typed;
      send.current(typed === "" ? undefined : typed);
    }, WAIT_MS);
    return () => clearTimeout(timer);
  }, [typed, whole]);

  return [typed, setTyped];
}
