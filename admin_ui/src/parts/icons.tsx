const PATHS = {
  code: "M8 7l-5 5 5 5M16 7l5 5-5 5",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20 20l-4-4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z",
  overview: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  request: "M4 6h10M4 12h16M8 18h8",
  tenants: "M4 20V8l8-4 8 4v12M9 20v-6h6v6",
  billing: "M5 3h14v18l-3-2-2 2-2-2-2 2-2-2-3 2zM9 8h6M9 12h6",
  replicas: "M4 5h16v5H4zM4 14h16v5H4zM8 7.5h.01M8 16.5h.01",
  placement: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 17h6",
  pools: "M4 6h6l4 6h6M4 18h6l4-6M17 9l3 3-3 3",
  bases:
    "M12 3c5 0 8 1.5 8 3s-3 3-8 3-8-1.5-8-3 3-3 8-3zM4 6v12c0 1.500 3 3 8 3s8-1.500 8-3V6M4 12c0 1.500 3 3 8 3s8-1.500 8-3",
  audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h7",
  settings:
    "M4 7h10M18 7h2M4 17h2M10 17h10M14 7a2 2 0 1 0 4 0a2 2 0 1 0-4 0M6 17a2 2 0 1 0 4 0a2 2 0 1 0-4 0",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
  key: "M8 11a4 4 0 1 0 0 8a4 4 0 0 0 0-8zM11 12l9-9M17 6l3 3",
  adapter: "M12 3l9 5-9 5-9-5zM3 13l9 5 9-5",
  person: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4 21c0-4 4-6 8-6s8 2 8 6",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      width="18"
      height="18"
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth="2"
      aria-hidden="true"
    >
      <path d={PATHS[name]} strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  );
}
