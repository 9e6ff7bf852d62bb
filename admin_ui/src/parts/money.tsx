import { Text } from "@mantine/core";

const UNITS = 10n ** 12n;
const LEAST = "0.000001";
const MINUS = "\u2212";

/** Money as a decimal string, rounded here and nowhere else: from 1 on exactly two decimals, below three
 * significant digits, and what is smaller still as less than that; the exact amount on hover. `amount` null:
 * nobody knows, for there is no price. `atLeast`: some of what it is of has no price. */
export function Money({
  amount,
  currency,
  atLeast = false,
}: {
  amount: string | null;
  currency: string | null;
  atLeast?: boolean;
}) {
  if (amount === null) {
    return (
      <Text span inherit c="dimmed" title="No price covers it yet">
        no price
      </Text>
    );
  }
  const exact = exactText(amount, currency);
  if (unitsOf(amount) === 0n && !atLeast) {
    return (
      <span title={exact}>
        <span aria-hidden="true">–</span>
        <span className="off-screen">{exact}</span>
      </span>
    );
  }
  return (
    <span className="figures" title={atLeast ? `${exact}, without what has no price` : exact}>
      {atLeast && "at least "}
      {moneyText(amount, currency)}
    </span>
  );
}

function moneyText(amount: string, currency: string | null): string {
  const units = unitsOf(amount);
  const size = units < 0n ? -units : units;
  if (size > 0n && size < unitsOf(LEAST)) {
    const least = written(LEAST, currency, { maximumSignificantDigits: 1 });
    return units < 0n ? `> ${MINUS}${least}` : `< ${least}`;
  }
  return size >= UNITS || size === 0n
    ? written(amount, currency, { minimumFractionDigits: 2, maximumFractionDigits: 2 })
    : written(amount, currency, { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
}

/** As the API has it, with its currency. */
export function exactText(amount: string, currency: string | null): string {
  return currency === null ? amount : `${amount}\u00a0${currency}`;
}

/** Exact amounts with as many decimals as the longest of them, so that their points stand under each other. */
export function alignedTexts(amounts: string[]): string[] {
  const places = Math.max(...amounts.map((amount) => amount.split(".")[1]?.length ?? 0));
  return amounts.map((amount) => {
    const [whole = "0", fraction = ""] = amount.split(".");
    return places === 0 ? whole : `${whole}.${fraction.padEnd(places, "0")}`;
  });
}

/** Whole units of 10⁻¹², as the server counts. */
function unitsOf(amount: string): bigint {
  const [whole = "0", fraction = ""] = amount.replace("-", "").split(".");
  const units = BigInt(whole) * UNITS + BigInt(fraction.padEnd(12, "0").slice(0, 12));
  return amount.startsWith("-") ? -units : units;
}

/** Strings are formatted exactly, however many digits they have. */
function written(amount: string, currency: string | null, digits: Intl.NumberFormatOptions): string {
  const style: Intl.NumberFormatOptions =
    currency === null ? {} : { style: "currency", currency, currencyDisplay: "narrowSymbol" };
  return new Intl.NumberFormat(undefined, { ...style, ...digits }).format(
    amount as Intl.StringNumericLiteral,
  );
}
