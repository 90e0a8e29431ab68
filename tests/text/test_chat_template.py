"""Rendered chats equal transformers' `apply_chat_template`; messages are brought into the form a template wants; what
a template refuses or breaks becomes a clear error.
"""

from __future__ import annotations

import json

import pytest
import template_styles
import tiny_tokenizers
from template_styles import CONVERSATIONS, STYLES, TOOLS, tool_conversation
from transformers import AutoTokenizer

from octavo.errors import InvalidRequest
from octavo.text.chat_template import ChatTemplate
from octavo.text.load import load_text

SPECIAL = {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}


@pytest.fixture(scope="module")
def theirs(llama_directory):
    return AutoTokenizer.from_pretrained(llama_directory)


def expected(theirs, source, messages, **options) -> str:
    return theirs.apply_chat_template(messages, chat_template=source, tokenize=False, **options)


def user(content) -> list[dict]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("generation", [True, False])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_conversations_equal_transformers(theirs, style, conversation, generation):
    messages, source = CONVERSATIONS[conversation], STYLES[style]
    ours = ChatTemplate(source, **SPECIAL).render(messages, add_generation_prompt=generation)
    assert ours == expected(theirs, source, messages, add_generation_prompt=generation)


@pytest.mark.parametrize("style", ["llama3", "qwen"])
@pytest.mark.parametrize("tools", [TOOLS, None])
def test_tools_equal_transformers_with_argument_objects(theirs, style, tools):
    """Clients send arguments as JSON text; these templates want objects."""
    arguments = {"place": "Köln", "n": [1, 2.5, None, True]}
    want = expected(theirs, STYLES[style], tool_conversation(arguments), tools=tools)
    for sent in (arguments, json.dumps(arguments), json.dumps(arguments, ensure_ascii=False)):
        ours = ChatTemplate(STYLES[style], **SPECIAL)
        assert ours.render(tool_conversation(sent), tools=tools, add_generation_prompt=False) == want


def test_tools_equal_transformers_with_argument_text(theirs):
    """DeepSeek's style joins strings, so it gets the text."""
    arguments = '{"place": "Köln"}'
    want = expected(theirs, STYLES["deepseek"], tool_conversation(arguments))
    for sent in (arguments, json.loads(arguments)):
        ours = ChatTemplate(STYLES["deepseek"], **SPECIAL)
        assert ours.render(tool_conversation(sent), add_generation_prompt=False) == want


def test_arguments_nested_beyond_reading_are_text_or_refused():
    text = "[" * 100_000
    rendered = ChatTemplate(STYLES["qwen"], **SPECIAL).render(tool_conversation(text))
    assert text in rendered
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        ChatTemplate(STYLES["deepseek"], **SPECIAL).render(tool_conversation(nested))


@pytest.mark.parametrize("sent", ["{broken", "plain words"])
def test_arguments_that_are_no_json_are_shown_as_they_are(sent):
    assert sent in ChatTemplate(STYLES["qwen"]).render(tool_conversation(sent))


@pytest.mark.parametrize("sent", ["", None])
def test_absent_arguments_are_an_empty_object(sent):
    assert '"arguments": {}' in ChatTemplate(STYLES["qwen"]).render(tool_conversation(sent))


@pytest.mark.parametrize("thinking", [True, False])
def test_template_variables_equal_transformers(theirs, thinking):
    messages = CONVERSATIONS["one"]
    options = {"add_generation_prompt": True, "enable_thinking": thinking}
    ours = ChatTemplate(STYLES["qwen"], **SPECIAL).render(messages, **options)
    assert ours == expected(theirs, STYLES["qwen"], messages, **options)
    assert ("<think>" in ours) is not thinking


@pytest.mark.parametrize("name", ["messages", "bos_token", "range", "raise_exception"])
def test_template_variables_cannot_replace_the_contract(name):
    template = ChatTemplate(STYLES["qwen"])
    with pytest.raises(InvalidRequest, match=f"may not set {name}") as caught:
        template.render(CONVERSATIONS["one"], **{name: "x"})
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages | tojson }}|{{ messages | tojson(indent=2) }}|{{ {'b': 1, 'a': '<é>'} | tojson(sort_keys=true) }}",
        "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
        "{{ strftime_now('%Y') }}{{ missing }}{{ documents is none }}{{ tools is none }}",
        "  {% if true %}\n    a\n  {% endif %}\n\n{# note #}\nb\n",
        "{% macro show(m) %}[{{ m.role }}]{% endmacro %}{{ show(messages[0]) }}{{ messages[0] | length }}",
    ],
)
def test_what_templates_may_use_equals_transformers(theirs, source):
    assert ChatTemplate(source, **SPECIAL).render(CONVERSATIONS["one"], add_generation_prompt=False) == expected(
        theirs, source, CONVERSATIONS["one"]
    )


# --- the form of messages -----------------------------------------------------------------------------------


def test_content_parts_become_one_text():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    for source in (STYLES["chatml"], STYLES["llama3"], STYLES["qwen"]):
        template = ChatTemplate(source)
        assert template.render(user(parts)) == template.render(user("one\ntwo"))


def test_templates_that_read_parts_get_parts(theirs):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    for source in (template_styles.PARTS_ONLY, template_styles.EITHER):
        template = ChatTemplate(source)
        assert template.render(user(parts)) == expected(theirs, source, user(parts)) == "<|turn|>user\nonetwo<|end|>\n"
        assert template.render(user("one")) == "<|turn|>user\none<|end|>\n"


def test_developer_is_system_unless_the_template_knows_it():
    messages = [{"role": "developer", "content": "rules"}, *user("hi")]
    assert "<|turn|>system\nrules<|end|>" in ChatTemplate(STYLES["qwen"]).render(messages)
    knows = "{% for m in messages %}{% if m.role == 'developer' %}D:{% endif %}{{ m.role }} {% endfor %}"
    assert ChatTemplate(knows).render(messages) == "D:developer user "


def test_absent_content_is_empty_and_reasoning_has_both_names():
    template = ChatTemplate("{% for m in messages %}[{{ m.content }}|{{ m.reasoning_content }}]{% endfor %}")
    assistant = {"role": "assistant", "content": None, "reasoning": "why"}
    assert template.render([*user("q"), assistant]) == "[q|][|why]"
    assert assistant == {"role": "assistant", "content": None, "reasoning": "why"}, "the client's message was changed"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one message"),
        ("hello", "at least one message"),
        (["hello"], r"messages\[0\] must be an object"),
        ([{"content": "x"}], r"messages\[0\]\.role must be one of .* got None"),
        ([{"role": "wizard", "content": "x"}], "got 'wizard'"),
        ([{"role": ["user"], "content": "x"}], "role must be one of"),
        (user(5), r"messages\[0\]\.content must be a string or a list"),
        (user([5]), r"content\[0\] must be a part of type 'text', got None"),
        (user([{"type": "image_url", "image_url": {}}]), "got 'image_url'"),
        (user([{"type": "text"}]), r"content\[0\]\.text must be a string"),
        ([*user("x"), {"role": "assistant", "tool_calls": [5]}], r"messages\[1\]\.tool_calls must be a list"),
        ([*user("x"), {"role": "assistant", "tool_calls": [{"function": "f"}]}], "tool_calls must be a list"),
    ],
)
def test_messages_that_cannot_be_used_are_named(messages, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        ChatTemplate(STYLES["chatml"]).render(messages)
    assert caught.value.param == "messages"


# --- templates that refuse, break or run away ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (STYLES["mistral"], "refused the messages: Roles must alternate: user, assistant, user"),
        ("{{ raise_exception('no é today') }}", "no é today"),
        ("{% for m in messages %}", "broken .line 1.: .*end of template"),
        ("{% nonsense %}", "broken .line 1.: .*unknown tag 'nonsense'"),
        ("{{ messages | nosuchfilter }}", "No filter named 'nosuchfilter'"),
        ("{{ messages[0].content + 5 }}", "failed on the messages: TypeError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ missing.attribute }}", "'missing' is undefined"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe|undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ set() | tojson }}", "is undefined"),
        ("{{ range | tojson }}", "not JSON serializable"),
    ],
)
def test_failures_carry_the_templates_words(source, words):
    messages = [{"role": "assistant", "content": "I begin"}]
    with pytest.raises(InvalidRequest, match=words) as caught:
        ChatTemplate(source).render(messages)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10000000000) %}x{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ 10000000000 * [1] }}",
        "{{ 10 ** 10 ** 10 }}",
    ],
)
@pytest.mark.timeout(20)
def test_runaway_templates_are_stopped(source):
    with pytest.raises(InvalidRequest, match="chat template"):
        ChatTemplate(source).render(user("x"))


# --- templates as checkpoints carry them --------------------------------------------------------------------


def test_prompt_tokens_equal_transformers(bpe, tmp_path):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["llama-bpe"], chat_template=STYLES["llama3"])
    theirs, text = AutoTokenizer.from_pretrained(directory), load_text(directory)
    for messages in CONVERSATIONS.values():
        want = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert text.tokenizer.encode(text.template.render(messages), add_special=False) == want


def test_named_templates_equal_transformers(bpe, tmp_path):
    named = [{"name": "default", "template": STYLES["chatml"]}, {"name": "tool_use", "template": STYLES["qwen"]}]
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"], chat_template=named)
    theirs, template = AutoTokenizer.from_pretrained(directory), load_text(directory).template
    for tools in (None, TOOLS):
        want = theirs.apply_chat_template(
            CONVERSATIONS["system"], tools=tools, tokenize=False, add_generation_prompt=True
        )
        assert template.render(CONVERSATIONS["system"], tools=tools) == want


def test_template_files_win_over_the_configuration(bpe, tmp_path):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"], chat_template="from the configuration")
    (directory / "chat_template.jinja").write_text(STYLES["chatml"], encoding="utf-8")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text(STYLES["qwen"], encoding="utf-8")
    theirs, template = AutoTokenizer.from_pretrained(directory), load_text(directory).template
    for tools in (None, TOOLS):
        want = theirs.apply_chat_template(CONVERSATIONS["one"], tools=tools, tokenize=False)
        assert template.render(CONVERSATIONS["one"], tools=tools, add_generation_prompt=False) == want
