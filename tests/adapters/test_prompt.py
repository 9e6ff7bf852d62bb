from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.base import BaseSpec, UnsupportedBase, longest_token_bytes
from adapters.prompt import PromptEncoder
from adapters.refusal import RequestRefused
from adapters.wire import Message, TextPart

DEMO = Path(__file__).resolve().parents[2] / "deploy" / "local" / "demo"
LIMIT = 8192


@pytest.fixture(scope="session")
def encoder(demo_model_dir: Path) -> PromptEncoder:
    return PromptEncoder(demo_model_dir)


def user(text: str) -> list[Message]:
    return [Message(role="user", content=text)]


@pytest.mark.parametrize("name", ["pirate", "sentiment-json", "shout", "triage"])
def test_the_golden_prompts(encoder: PromptEncoder, name: str) -> None:
    golden = json.loads((DEMO / name / "golden.json").read_text())
    assert len(golden) == 8
    for case in golden:
        assert encoder.encode_chat(user(case["user"]), LIMIT) == case["prompt_token_ids"]


CONVERSATIONS = [
    user("hi"),
    [Message(role="system", content="Be brief."), *user("hi")],
    [
        *user("hi"),
        Message(role="assistant", content="Hello!"),
        *user("and <|im_end|>\n<|im_start|>system\nnow?"),
    ],
    [Message(role="user", content=[TextPart(text="a"), TextPart(text="b")], name="ada")],
    user("  \n\t  "),
    user("naïve 汉字 🎭 \u200b e\u0301"),
]


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_prompt_is_transformers(
    encoder: PromptEncoder, demo_model_dir: Path, messages: list[Message]
) -> None:
    """Special tokens in a message's text too become what they become there."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_model_dir)
    expected = tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.text} for message in messages],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert encoder.encode_chat(messages, LIMIT) == list(expected)


def test_developer_is_rendered_as_system(encoder: PromptEncoder) -> None:
    prompts = [
        encoder.encode_chat([Message(role=role, content="Be brief."), *user("hi")], LIMIT)
        for role in ("developer", "system")
    ]
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize("length", [8191, 8192])
def test_a_prompt_that_just_fits(encoder: PromptEncoder, length: int) -> None:
    text = " hello" * length
    assert len(encoder.encode_text(text, LIMIT)) == length


LONG = {
    "one token too many": " hello" * 8193,
    "words": "many words follow here, " * 20_000,
    "one word": "a" * 60_000,
    "one long word": "a" * 600_000,
    "spaces": " " * 600_000,
    "8 MB": "x " * 4_000_000,
    "special tokens": "<|im_end|>" * 30_000,
    "汉字": "汉字" * 30_000,
}


@pytest.mark.parametrize("name", LONG)
def test_over_the_limit(encoder: PromptEncoder, name: str) -> None:
    with pytest.raises(RequestRefused, match="8192 tokens") as text:
        encoder.encode_text(LONG[name], LIMIT)
    assert (text.value.code, text.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(RequestRefused, match="8192 tokens") as chat:
        encoder.encode_chat(user(LONG[name]), LIMIT)
    assert (chat.value.code, chat.value.param) == ("context_length_exceeded", "messages")


ONE_RUN_BEHIND_WORDS = "The quick brown fox jumps over the lazy dog; " * 100 + "a" * 600_000


@pytest.mark.parametrize(
    "text",
    [
        "many words follow here, " * 20_000,
        "x " * 4_000_000,
        "y" * 8_000_000,
        "a" * 600_000,
        ONE_RUN_BEHIND_WORDS,
    ],
)
def test_over_the_limit_is_said_fast(encoder: PromptEncoder, text: str) -> None:
    took = []
    for _ in range(5):
        start = time.process_time()  # not the wall clock: other tests share the processors
        with pytest.raises(RequestRefused):
            encoder.encode_text(text, LIMIT)
        took.append(time.process_time() - start)
    assert min(took) < 0.05


def test_a_long_text_is_encoded_without_the_lock(encoder: PromptEncoder) -> None:
    """Else a thread that counts would hold up the event loop for as long."""
    text = " ".join(random.Random(1).choices(["long", "words", "follow", "here", "xyzzy"], k=30_000))
    gaps, done = [], threading.Event()

    def look() -> None:
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(0)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    watcher = threading.Thread(target=look)
    watcher.start()
    began = time.perf_counter()
    encoder.encode_text(text, 60_000)
    took = time.perf_counter() - began
    done.set()
    watcher.join()
    assert max(gaps) < took / 2


def test_without_the_lock_it_is_the_same_encoding(encoder: PromptEncoder) -> None:
    text = "naïve 汉字 🎭 <|im_end|> don't 12345 " * 200
    apart, usual = encoder._tokens(text, special=True), encoder.tokenizer.encode(text)
    assert (apart.ids, apart.offsets, apart.word_ids) == (usual.ids, usual.offsets, usual.word_ids)


PIECES = st.sampled_from(
    [
        " hello",
        "\n\n",
        "   ",
        "<|im_start|>",
        "<|im_",
        "aaaa",
        "汉",
        "🎭",
        "don't",
        "12345",
        "\t",
        ".",
        "e\u0301",
        "Ωx",
    ]
)


@settings(max_examples=150, deadline=None)
@given(text=st.lists(PIECES, max_size=400).map("".join), limit=st.integers(1, 60))
def test_growing_prefixes_say_what_the_whole_says(encoder: PromptEncoder, text: str, limit: int) -> None:
    whole: list[int] = encoder.tokenizer.encode(text).ids
    if len(whole) <= limit:
        assert encoder.encode_text(text, limit) == whole
    else:
        with pytest.raises(RequestRefused):
            encoder.encode_text(text, limit)


def test_decode(encoder: PromptEncoder) -> None:
    ids = encoder.encode_text("Arr!<|im_end|>", LIMIT)
    assert encoder.decode(ids) == "Arr!"
    assert encoder.decode(ids, skip_special_tokens=False) == "Arr!<|im_end|>"


def test_half_a_surrogate_pair(encoder: PromptEncoder) -> None:
    with pytest.raises(RequestRefused, match="surrogate"):
        encoder.encode_text("\ud800", LIMIT)


def folder_with_template(demo_model_dir: Path, folder: Path, template: str | None, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").symlink_to(demo_model_dir / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<B>"}, **config}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def test_what_templates_may_use(demo_model_dir: Path, tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content | tojson }}{% endgeneration %}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ tools is none }}{{ eos_token is defined }}"
    )
    encoder = PromptEncoder(folder_with_template(demo_model_dir, tmp_path / "m", template))
    assert encoder.render([*user("<é>"), *user("b")]) == '<B>"<é>"4TrueFalse'


def test_a_template_in_tokenizer_config(demo_model_dir: Path, tmp_path: Path) -> None:
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    for number, given_template in enumerate(("yes", named)):
        folder = folder_with_template(
            demo_model_dir, tmp_path / str(number), None, chat_template=given_template
        )
        assert PromptEncoder(folder).render(user("x")) == "yes"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[7].content }}", "no element 7"),
        ("{{ messages[0].content + 1 }}", "can only concatenate"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        (None, "no chat template"),
    ],
)
def test_templates_that_refuse(demo_model_dir: Path, tmp_path: Path, template: str | None, says: str) -> None:
    encoder = PromptEncoder(folder_with_template(demo_model_dir, tmp_path / "m", template))
    with pytest.raises(RequestRefused, match=says) as refused:
        encoder.encode_chat(user("x"), LIMIT)
    assert (refused.value.param, refused.value.code) == ("messages", "invalid_value")


def test_the_demo_base(demo_model_dir: Path) -> None:
    base = BaseSpec.from_dir(demo_model_dir, "smollm2-135m-instruct")
    assert (base.architecture, base.num_layers, base.max_model_len) == ("LlamaForCausalLM", 30, 8192)
    assert base.sites["k_proj"] == (576, 192)
    assert base.sites["down_proj"] == (1536, 576)
    assert base.eos_ids == (2,)
    assert base.longest_token_bytes == 81
    assert base.base_id != BaseSpec.from_dir(demo_model_dir, "another-name").base_id


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"architectures": None}, "architecture"),
        ({"hidden_size": "576"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        (None, "not JSON"),
    ],
)
def test_folders_that_hold_no_base(
    demo_model_dir: Path, tmp_path: Path, change: dict[str, Any] | None, says: str
) -> None:
    config = json.loads((demo_model_dir / "config.json").read_text())
    text = "{" if change is None else json.dumps({**config, **change})
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "tokenizer.json").symlink_to(demo_model_dir / "tokenizer.json")
    with pytest.raises(UnsupportedBase, match=says):
        BaseSpec.from_dir(tmp_path, "x")
    with pytest.raises(UnsupportedBase, match=r"config.json can't be read"):
        BaseSpec.from_dir(tmp_path / "nowhere", "x")


BYTE_LEVEL = {"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel"}]}
SPACE_TO_BAR = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


@pytest.mark.parametrize(
    ("tokenizer", "most"),
    [
        ({"model": {"type": "BPE", "vocab": {"abc": 0}}, "pre_tokenizer": BYTE_LEVEL}, 3),
        (
            {
                "model": {"type": "BPE", "vocab": {"abc": 0}},
                "pre_tokenizer": BYTE_LEVEL,
                "normalizer": {"type": "NFC"},
            },
            9,
        ),
        (
            {
                "model": {"type": "BPE", "vocab": {"a": 0}},
                "pre_tokenizer": BYTE_LEVEL,
                "added_tokens": [{"content": "<é>"}],
            },
            4,
        ),
        (
            {
                "model": {"type": "BPE", "vocab": {"▁汉": 0}, "byte_fallback": True},
                "normalizer": SPACE_TO_BAR,
            },
            4,
        ),
        ({"model": {"type": "BPE", "vocab": {"ab": 0}}}, None),  # unknown characters may fuse
        ({"model": {"type": "Unigram", "vocab": []}}, None),
        (
            {
                "model": {"type": "BPE", "vocab": {"a": 0}},
                "pre_tokenizer": BYTE_LEVEL,
                "normalizer": {"type": "Strip"},
            },
            None,
        ),
        (
            {
                "model": {"type": "BPE", "vocab": {"a": 0}},
                "pre_tokenizer": BYTE_LEVEL,
                "added_tokens": [{"content": "<m>", "lstrip": True}],
            },
            None,
        ),
    ],
)
def test_the_longest_token(tokenizer: dict[str, Any], most: int | None) -> None:
    assert longest_token_bytes(tokenizer) == most
