import { NumberInput, type NumberInputProps } from "@mantine/core";
import { useEffect, useRef, useState } from "react";

interface Props extends Omit<NumberInputProps, "value" | "onChange" | "onBlur"> {
  /** Null: the field is empty. */
  value: number | null;
  onChange: (value: number | null) => void;
}

/** A field for a number. What is typed on the way to one ("-", "0.", "1.50") is the field's own: read as a number
 * too soon, it would be none, which JSON writes as null and the API takes for "no limit". */
export function NumberField({ value, onChange, ...rest }: Props) {
  const [typed, setTyped] = useState<number | string>(value ?? "");
  const told = useRef(value);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (value !== told.current) {
      told.current = value;
      setTyped(value ?? "");
    }
  }, [value]);
  return (
    <NumberInput
      {...rest}
      ref={field}
      value={typed}
      onChange={(next) => {
        const isLeft = document.activeElement !== field.current;
        if (next === "" && isLeft && Number.isNaN(Number(typed))) {
          setTyped(value ?? ""); // of what was none, the field leaves nothing, which nobody typed
          return;
        }
        setTyped(next);
        const read = next === "" ? null : Number(next);
        if (!Number.isNaN(read) && read !== told.current) {
          told.current = read;
          onChange(read);
        }
      }}
      onBlur={() => {
        if (typed === "" ? value !== null : Number.isNaN(Number(typed))) {
          setTyped(value ?? ""); // it was no number, or none that whoever asks takes
          told.current = value;
        }
      }}
    />
  );
}
