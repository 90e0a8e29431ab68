"""Chat templates in the styles of the families, written for these tests, and conversations to render with them."""

from __future__ import annotations

CHATML = """\
{%- for message in messages %}
    {%- if loop.first and message['role'] != 'system' %}
        {{- '<|turn|>system\\nBe brief.<|end|>\\n' }}
    {%- endif %}
    {{- '<|turn|>' + message['role'] + '\\n' + message['content'] + '<|end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
{%- endif %}
"""

LLAMA3 = """\
{{ bos_token }}
{%- set date = strftime_now("%d %b %Y") if strftime_now is defined else "unknown" %}
{%- if messages[0].role == "system" %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|turn|>system\\nToday is " + date + "\\n" + system + "<|end|>" }}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("one tool call at a time, please") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- "<|turn|>assistant\\n" + '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + "}" }}
    {%- elif message.role in ["tool", "ipython"] %}
        {{- "<|turn|>ipython\\n" + (message.content | tojson if message.content is mapping else message.content) }}
    {%- else %}
        {{- "<|turn|>" + message.role + "\\n" + message.content | trim }}
    {%- endif %}
    {{- "<|end|>" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|turn|>assistant\\n" }}{% endif %}
"""

MISTRAL = """\
{%- if messages[0]['role'] == 'system' %}
    {%- set system, turns = messages[0]['content'], messages[1:] %}
{%- else %}
    {%- set system, turns = false, messages %}
{%- endif %}
{{- bos_token }}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate: user, assistant, user, ...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.last and system %}
            {{- '[INST] ' + system + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- '[INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] | trim + eos_token }}
    {%- else %}
        {{- raise_exception('Only user and assistant take part') }}
    {%- endif %}
{%- endfor %}
"""

DEEPSEEK = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% set ns = namespace(system='', first=true) %}
{% for message in messages %}
{% if message['role'] != 'system' %}{% continue %}{% endif %}
{% if not ns.first %}{% set ns.system = ns.system + '\\n\\n' %}{% endif %}
{% set ns.system = ns.system + message['content'] %}{% set ns.first = false %}
{% endfor %}
{{ bos_token }}{{ ns.system }}
{% for message in messages %}
{% if message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}{% endif %}
{% if message['role'] == 'assistant' %}
{% if message['tool_calls'] is defined %}
{% for tool in message['tool_calls'] %}
{{ '<|tool|>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments'] + '\\n```' }}
{% endfor %}
{% else %}{% generation %}
{{ '<|Assistant|>' + message['content'].split('</think>')[-1] + eos_token }}
{% endgeneration %}{% endif %}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}
"""

QWEN = """\
{%- if tools %}
    {{- '<|turn|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "You may call these functions:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|turn|>system\\n' + messages[0].content + '<|end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|turn|>' + message.role + '\\n' + message.content + '<|end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|turn|>assistant' }}
        {%- if message.reasoning_content and loop.last %}
            {{- '\\n<think>' + message.reasoning_content + '</think>' }}
        {%- endif %}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
            {{- '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|turn|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

PARTS_ONLY = """\
{%- for message in messages %}
    {{- '<|turn|>' + message.role + '\\n' }}
    {%- for part in message.content %}
        {%- if part.type == 'text' %}{{- part.text }}{%- endif %}
    {%- endfor %}
    {{- '<|end|>\\n' }}
{%- endfor %}
"""

EITHER = """\
{%- for message in messages %}
    {{- '<|turn|>' + message.role + '\\n' }}
    {%- if message.content is string %}{{- message.content }}
    {%- else %}{%- for part in message.content %}{{- part.text }}{%- endfor %}{%- endif %}
    {{- '<|end|>\\n' }}
{%- endfor %}
"""

STYLES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "deepseek": DEEPSEEK, "qwen": QWEN}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_weather",
            "description": "Wetter für einen Ort <b>&'\"",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]

CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hi! 你好 🎉"}],
    "system": [
        {"role": "system", "content": "  Answer in rhyme.\n"},
        {"role": "user", "content": "def f(x):\n\treturn x  # <&'\">\n"},
    ],
    "turns": [
        {"role": "user", "content": "one <|end|>"},
        {"role": "assistant", "content": "<think>hm</think> two "},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "{{ not_a_template }} {% raise %}"},
        {"role": "user", "content": "x" * 10_000},
    ],
}


def tool_conversation(arguments: object) -> list[dict]:
    """A call and its result; arguments as the template wants them or as clients send them."""
    call = {"name": "find_weather", "arguments": arguments}
    return [
        {"role": "user", "content": "How is the weather in Köln?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"°C": 21}'},
    ]
