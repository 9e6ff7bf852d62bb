import { Select } from "@mantine/core";
import { useReadyVersions } from "./alias-data";

interface Props {
  label: string;
  value: number | null;
  onChange: (version: number | null) => void;
  without?: readonly number[];
  error?: string | null;
}

/** Of those that are ready; the newest hundred. */
export function VersionSelect({ label, value, onChange, without = [], error = null }: Props) {
  const ready = useReadyVersions();
  const listed = (ready.data?.numbers ?? []).filter((number) => !without.includes(number));
  const numbers = value === null || listed.includes(value) ? listed : [value, ...listed];
  return (
    <Select
      label={label}
      placeholder={ready.data !== undefined && numbers.length === 0 ? "No other version is ready" : "Choose"}
      description={ready.data?.more ? "The newest 100 that are ready" : "Those that are ready"}
      searchable
      allowDeselect={false}
      data={numbers.map((number) => ({ value: String(number), label: `Version ${number}` }))}
      value={value === null ? null : String(value)}
      error={error ?? (ready.error === null ? null : "The versions can't be read now.")}
      onChange={(chosen) => onChange(chosen === null ? null : Number(chosen))}
    />
  );
}
