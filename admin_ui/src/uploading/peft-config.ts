import { type Refusal, shown } from "./refusal";

/** What the gateway refuses of adapter_config.json, told before anything is sent. The gateway has the last word,
 * and a test holds these lists to its own (adapters/peft_config.py). */
export const CONFIG = "adapter_config.json";
const MAX_RANK = 256;
const KNOWN = [
  "peft_type",
  "task_type",
  "r",
  "lora_alpha",
  "use_rslora",
  "rank_pattern",
  "alpha_pattern",
  "target_modules",
  "exclude_modules",
  "layers_to_transform",
  "layers_pattern",
  "bias",
  "init_lora_weights",
  "base_model_name_or_path",
  "revision",
  "peft_version",
  "auto_mapping",
  "inference_mode",
  "lora_dropout",
  "eva_config",
  "ensure_weight_tying",
  "megatron_core",
  "qalora_group_size",
  "runtime_config",
];
const UNSERVED: Record<string, string> = {
  use_dora: "DoRA",
  modules_to_save: "modules saved whole",
  trainable_token_indices: "trained tokens",
  lora_bias: "LoRA biases",
  fan_in_fan_out: "transposed weights",
  layer_replication: "layer replication",
  alora_invocation_tokens: "activated LoRA",
  use_qalora: "QALoRA",
  use_bdlora: "block-diagonal LoRA",
  megatron_config: "Megatron layers",
  target_parameters: "parameters outside linear layers",
  arrow_config: "Arrow routing",
  kasa_config: "KaSA",
  monteclora_config: "MonteCLoRA",
  velora_config: "VeLoRA",
  corda_config: "CorDA",
  lora_ga_config: "LoRA-GA",
  loftq_config: "LoftQ",
};

type Config = Record<string, unknown>;

export function checkConfig(text: string): Refusal[] {
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch (error) {
    return [malformed(error instanceof Error ? error.message : "no JSON")];
  }
  if (typeof config !== "object" || config === null || Array.isArray(config)) {
    return [malformed(shown(config))];
  }
  const found = config as Config;
  return [...kind(found), ...features(found), ...ranks(found), ...targets(found)];
}

function malformed(found: string): Refusal {
  return {
    place: CONFIG,
    found,
    allowed: "a JSON object",
    fix: "Write it again with save_pretrained of PEFT; it is not edited by hand.",
  };
}

function kind(config: Config): Refusal[] {
  const refusals: Refusal[] = [];
  if (config.peft_type !== "LORA") {
    refusals.push(
      refusal("peft_type", config.peft_type, '"LORA"', "Train a LoRA: other methods are not served."),
    );
  }
  if (config.task_type !== "CAUSAL_LM" && config.task_type != null) {
    refusals.push(
      refusal("task_type", config.task_type, '"CAUSAL_LM"', "Train it as a causal language model."),
    );
  }
  if (config.bias !== undefined && config.bias !== "none") {
    refusals.push(refusal("bias", config.bias, '"none"', 'Train with bias="none".'));
  }
  return refusals;
}

function features(config: Config): Refusal[] {
  return Object.entries(config).flatMap(([field, value]) => {
    if (KNOWN.includes(field) || asksNothing(value)) {
      return [];
    }
    const what = UNSERVED[field];
    return what === undefined
      ? [refusal(field, value, "a field of PEFT that is known here", "Take it out, if it means nothing.")]
      : [refusal(field, value, "not set", `Train without it: ${what} can't be served.`)];
  });
}

function asksNothing(value: unknown): boolean {
  if (value === null || value === false || value === "") {
    return true;
  }
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

function ranks(config: Config): Refusal[] {
  const pattern = config.rank_pattern;
  const others = typeof pattern === "object" && pattern !== null ? Object.entries(pattern) : [];
  const all: [string, unknown][] = [
    ["r", config.r ?? 8],
    ...others.map(([name, rank]): [string, unknown] => [`rank_pattern[${shown(name)}]`, rank]),
  ];
  return all
    .filter(([, rank]) => !(Number.isInteger(rank) && Number(rank) >= 1 && Number(rank) <= MAX_RANK))
    .map(([field, rank]) =>
      refusal(field, rank, `a rank from 1 to ${MAX_RANK}`, "Train it with a rank within these."),
    );
}

function targets(config: Config): Refusal[] {
  const wanted = config.target_modules;
  const named = typeof wanted === "string" ? wanted !== "" : Array.isArray(wanted) && wanted.length > 0;
  return named
    ? []
    : [
        refusal(
          "target_modules",
          wanted,
          'names of linear layers, as ["q_proj", "v_proj"]',
          "Write it again with save_pretrained of PEFT.",
        ),
      ];
}

function refusal(field: string, value: unknown, allowed: string, fix: string): Refusal {
  return { place: `${CONFIG}: ${field}`, found: shown(value), allowed, fix };
}
