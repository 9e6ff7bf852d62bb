// Asks one question with openai-node and prints, as one JSON, what the SDK made of the answer.
// node read.mjs BASE_URL '{"model": …}'
import OpenAI from "openai";

const [baseURL, body] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "key", maxRetries: 0 });
const seen = { texts: {}, finishes: {}, usages: [], chunks: 0, error: null };
try {
  const answer = await client.chat.completions.create(JSON.parse(body));
  for await (const chunk of answer) {
    seen.chunks += 1;
    if (chunk.usage) seen.usages.push({ tokens: chunk.usage.completion_tokens, choices: chunk.choices.length });
    for (const choice of chunk.choices) {
      seen.texts[choice.index] = (seen.texts[choice.index] ?? "") + (choice.delta.content ?? "");
      if (choice.finish_reason) seen.finishes[choice.index] = choice.finish_reason;
    }
  }
} catch (error) {
  seen.error = { name: error.constructor.name, status: error.status ?? null, code: error.code ?? null, message: error.message };
}
console.log(JSON.stringify(seen));
