"""The pre-tokenizers that a GGUF file names in `tokenizer.ggml.pre`: how text is cut before BPE merges apply.
Owns the table of names and expressions; merges and vocabularies are `from_gguf.py`.

The expressions are interface facts: those of each family's published `tokenizer.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, normalizers, pre_tokenizers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SYMBOLS_AND_SPACE = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{SYMBOLS_AND_SPACE}"
QWEN2 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{SYMBOLS_AND_SPACE}"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3_NUMBERS = r"\p{N}{1,3}"
DEEPSEEK3_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_LINE_ENDS = r"[\r\n]"
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# The cased letters that DeepSeek LLM lists one by one; neither \p{L} nor any one Unicode version's Lu, Ll and Lt.
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
DEEPSEEK_PUNCTUATION = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One family's cut. `splits` apply one after another, each to the parts the former left; `digits` then cuts
    digits one by one; `gpt2` applies GPT-2's own expression last.

    `ignore_merges`: a part that is a token as a whole stays one. `add_bos`: the default where the file is silent.
    """

    splits: tuple[str, ...] = ()
    digits: bool = False
    gpt2: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The cut followed by the byte alphabet."""
        stages: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(split), "isolated") for split in self.splits
        ]
        if self.digits:
            stages.append(pre_tokenizers.Digits(individual_digits=True))
        stages.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.gpt2))
        return pre_tokenizers.Sequence(stages)

    def normalizer(self) -> normalizers.Normalizer | None:
        """What happens to the text before the cut."""
        return normalizers.NFC() if self.nfc else None


def _by_name() -> Mapping[str, PreTokenizer]:
    gpt2 = PreTokenizer(gpt2=True)
    llama3 = PreTokenizer(splits=(LLAMA3,), ignore_merges=True, add_bos=True)
    qwen2 = PreTokenizer(splits=(QWEN2,), nfc=True)
    smollm = PreTokenizer(digits=True, gpt2=True)
    deepseek_llm = PreTokenizer(
        splits=(
            DEEPSEEK_LINE_ENDS,
            rf"\s?[{DEEPSEEK_LETTERS}]+",
            DEEPSEEK_PUNCTUATION,
            r"\s+$",
            DEEPSEEK_CJK,
        ),
        digits=True,
    )
    deepseek_coder = PreTokenizer(splits=(DEEPSEEK_LINE_ENDS, r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK), digits=True)
    deepseek_v3 = PreTokenizer(splits=(DEEPSEEK3_NUMBERS, DEEPSEEK3_CJK, DEEPSEEK3_WORDS))
    tekken = PreTokenizer(splits=(TEKKEN,), ignore_merges=True, add_bos=True)
    return MappingProxyType(
        {
            "default": gpt2,
            "gpt-2": gpt2,
            "llama-bpe": llama3,
            "llama3": llama3,
            "llama-v3": llama3,
            "qwen2": qwen2,
            "deepseek-r1-qwen": qwen2,
            "smollm": smollm,
            "starcoder": smollm,
            "deepseek-llm": deepseek_llm,
            "deepseek-coder": deepseek_coder,
            "deepseek-v3": deepseek_v3,
            "tekken": tekken,
        }
    )


PRE_TOKENIZERS = _by_name()
