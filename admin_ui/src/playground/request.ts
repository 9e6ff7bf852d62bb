/** What is asked, as the API has it, and as programs would write it. */
import { prefix } from "../place";

export const NUMBERS = {
  max_tokens: {
    label: "Most tokens",
    min: 1,
    max: 1_000_000,
    step: 1,
    hint: "1,024, or what the context leaves",
  },
  temperature: { label: "Temperature", min: 0, max: 2, step: 0.1, hint: "1; 0 is greedy and exact" },
  top_p: { label: "Top p", min: 0.01, max: 1, step: 0.05, hint: "1: off" },
  seed: { label: "Seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, hint: "By chance" },
  top_k: { label: "Top k", min: -1, max: 1_000_000, step: 1, hint: "0: off" },
  min_p: { label: "Min p", min: 0, max: 1, step: 0.05, hint: "0: off" },
  presence_penalty: { label: "Presence penalty", min: -2, max: 2, step: 0.1, hint: "0" },
  frequency_penalty: { label: "Frequency penalty", min: -2, max: 2, step: 0.1, hint: "0" },
  repetition_penalty: { label: "Repetition penalty", min: 0.1, max: 10, step: 0.1, hint: "1" },
} as const;

export type NumberName = keyof typeof NUMBERS;
export type Numbers = { [Name in NumberName]?: number | undefined };
export const NUMBER_NAMES = Object.keys(NUMBERS) as NumberName[];

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface ChatBody extends Numbers {
  model: string;
  messages: Message[];
  stop?: string[];
}

export function chatBody(model: string, messages: Message[], numbers: Numbers, stop: string[]): ChatBody {
  const named = NUMBER_NAMES.filter((name) => numbers[name] !== undefined);
  return {
    model,
    messages,
    ...Object.fromEntries(named.map((name) => [name, numbers[name]])),
    ...(stop.length === 0 ? {} : { stop }),
  };
}

const root = () => `${window.location.origin}${prefix}/v1`;

/** The key is never in it: that of the page ends with the page. */
export function asCurl(body: ChatBody): string {
  const data = JSON.stringify({ ...body, stream: true }, null, 2).replaceAll("'", "'\\''");
  return [
    `curl -N '${root()}/chat/completions' \\`,
    `  -H "authorization: Bearer $MOTET_API_KEY" \\`,
    `  -H 'content-type: application/json' \\`,
    `  -d '${data}'`,
  ].join("\n");
}

const OURS: readonly string[] = ["top_k", "min_p", "repetition_penalty"]; // which OpenAI's SDK doesn't know

export function asPython(body: ChatBody): string {
  const { model, messages, ...rest } = body;
  const known = Object.entries(rest).filter(([name]) => !OURS.includes(name));
  const ours = Object.entries(rest).filter(([name]) => OURS.includes(name));
  const given = [
    `    model=${literal(model)},`,
    `    messages=${literal(messages)},`,
    ...known.map(([name, value]) => `    ${name}=${literal(value)},`),
    ...(ours.length === 0 ? [] : [`    extra_body=${literal(Object.fromEntries(ours))},`]),
    "    stream=True,",
  ];
  return [
    "import os",
    "",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(root())}, api_key=os.environ["MOTET_API_KEY"])`,
    "stream = client.chat.completions.create(",
    ...given,
    ")",
    "for chunk in stream:",
    '    print(chunk.choices[0].delta.content or "", end="", flush=True)',
  ].join("\n");
}

/** JSON of texts, numbers, lists and mappings is Python, too. */
function literal(value: unknown): string {
  return JSON.stringify(value);
}
