"""Texts that break tokenizers: scripts, emoji, code, white space, numbers; a training corpus made of them; and
random mixtures from a seed.
"""

from __future__ import annotations

import random

TEXTS = [
    "Hello, world!",
    " leading and trailing ",
    "The quick brown fox can't jump; it'll stay, they've SAID, I'M sure.",
    "THEY'LL we'Re 'tis ''quoted''",
    "x = 1234567890 + 3.14159e-10  # ½ ² Ⅷ ٣٤٥",
    "def f(a: int) -> list[int]:\n\treturn [x**2 for x in range(a)]  # note\n\n\nclass A:\r\n    pass\r\n",
    "<html lang='en'><p class=\"x\">&amp; {{ braces }} </p></html>",
    "你好，世界！今天天气很好。我们去公园玩吧，三点见。",
    "こんにちは世界。カタカナとひらがな、漢字。",
    "안녕하세요 세계! 한국어 문장입니다.",
    "Привет, мир! Ελληνικά κείμενα. שלום עולם مرحبا بالعالم",
    "naïve café Ünïcödé straße ﬁne Å ạ̈ e\u0301 \u212b",
    "🎉 emoji 👩‍👩‍👧‍👦 family 🏳️‍🌈 flags 🇩🇪🇫🇷 👍🏽",
    "     five   spaces\t\ttabs\n\n  \n mixed \u00a0nbsp \u3000wide \u200b zero",
    "trailing newlines\n\n\n",
    "\n",
    " ",
    "...!!!??? --- *** ### $$$ @user #tag 100% a_b c-d e/f\\g",
    "snake_case camelCase PascalCase SCREAMING_CASE iPhone15Pro v2.0.1-rc3",
    "\U0001d400\U0001d401 math, \ud7a3 hangul, \ufffd replacement, \x00\x01\x7f controls",
    "ქართული ტექსტი და კიდევ",
    "a" * 300,
    "12345678901234567890123",
]

SPECIAL_TEXTS = ["<|turn|>user\nHi<|end|>", "a<|end|><|end|> b", "<|turn|>", "x <tool> y<tool>", "<|tur n|> <|end"]

ALPHABET = "abcXYZ 123  ,.'\"!?-_()\n\t\r你好世界です한국éßñ½ЯжΩא🎉👍\u200d\u00a0"


def mixtures(count: int, seed: int) -> list[str]:
    """Random texts: runs of odd characters and pieces of the texts above."""
    rng = random.Random(seed)
    return ["".join(_run(rng) for _ in range(rng.randint(1, 6))) for _ in range(count)]


def _run(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 12)))
    text = rng.choice(TEXTS)
    start = rng.randrange(len(text))
    return text[start : start + rng.randint(1, 20)]


def long_text(characters: int = 10_000) -> str:
    """Prose, code, CJK and emoji, cut to an exact length."""
    once = "\n".join(TEXTS)
    return (once * (characters // len(once) + 1))[:characters]


def corpus() -> list[str]:
    """What tiny tokenizers are trained on."""
    words = ["the", "that", "they", "there", "cat", "hat", "in", "ing", "return", "range", "12", "123", "2024"]
    rng = random.Random(7)
    return TEXTS * 4 + [" ".join(rng.choices(words, k=12)) for _ in range(200)]
