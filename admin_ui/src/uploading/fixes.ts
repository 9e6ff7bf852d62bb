/** What whoever made an adapter does about it, by the API's code of the refusal or the name of the check. */
const FIXES: Record<string, string> = {
  base_mismatch: "Train it on the base that this installation serves, or upload it where its own base is.",
  not_safetensors: "Save it with save_pretrained(folder, safe_serialization=True) of PEFT.",
  header_malformed: "Save it again with PEFT, and upload that file.",
  bad_offsets: "The file is not complete or was changed: save or copy it again.",
  bad_dtype: "Save it in bf16, fp16 or fp32.",
  not_finite: "Training diverged: take an earlier checkpoint, or train with a lower learning rate.",
  no_effect: "All of its B factors are zero: upload a checkpoint from after training.",
  rank_out_of_range: "Train it with a rank within these.",
  rank_mismatch: "Config and tensors are of two trainings: upload both files of one.",
  missing_pair: "A factor is missing: save it again with PEFT.",
  unknown_tensor: "Save only the LoRA's tensors, with save_pretrained of PEFT.",
  target_without_tensor: "Config and tensors are of two trainings: upload both files of one.",
  tensor_without_target: "Config and tensors are of two trainings: upload both files of one.",
  unsupported_feature: "Train without it: it can't be served.",
  unknown_field: "Take the field out, if it means nothing.",
  invalid_acceptance: "Mend the prompt that is named.",
  adapter_storage_full: "Purge versions that nobody needs, or have the operator raise the quota.",
  too_many_versions: "Purge versions that nobody needs.",
  differs: "It answers as the base does: upload a checkpoint from after training.",
  dense: "The file may be damaged: save it again from training, and upload it.",
  finite_longest: "Train on texts as long as those it is to serve, or take an earlier checkpoint.",
  finite: "Training diverged: take an earlier checkpoint, or train with a lower learning rate.",
  acceptance: "Train on until it answers as asked, or mend the prompts if they ask for too much.",
  loads: "Save it again from training, and upload it.",
};

const ALLOWED: Record<string, string> = {
  base_mismatch: "an adapter of the base that is served here",
  not_safetensors: "safetensors: pickles are never read",
  header_malformed: "a file of safetensors, whole and unchanged",
  bad_offsets: "tensors side by side that fill the file",
  bad_dtype: "F32, F16 or BF16",
  not_finite: "numbers only, no NaN and no infinity",
  no_effect: "an adapter that changes the base's answers",
  rank_mismatch: "the rank that the config says",
  missing_pair: "both factors of each module",
  unsupported_feature: "a plain LoRA of linear layers",
  unknown_field: "fields of PEFT that are known here",
};

/** What the API would have taken in its place. */
export function allowedOf(code: string | undefined): string {
  return ALLOWED[code ?? ""] ?? "what the API's documentation says of uploads";
}

export function fixOf(code: string | undefined): string {
  return FIXES[code ?? ""] ?? "Mend what is named, and upload it again.";
}
