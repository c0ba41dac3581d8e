"""Calls a model API with the SDK of its vendor, and writes each result as a line of JSON.

Arguments: the SDK, the site, a key, the number of retries, and the calls: whole or streamed. In place of each sleep of the SDK is
a line with its seconds; the script continues with the next line of its input.
"""

import json
import sys
import time

import anthropic
import openai

sdk, site, key, retries, *calls = sys.argv[1:]
MESSAGES = [{"role": "user", "content": "Say hello."}]


def write(**fields):
    print(json.dumps(fields), flush=True)


def sleep(seconds):
    write(wait=seconds)
    sys.stdin.readline()


def call_openai(call):
    client = openai.OpenAI(base_url=f"{site}/v1", api_key=key, max_retries=int(retries))
    create = client.chat.completions.create
    if call == "whole":
        completion = create(model="m", messages=MESSAGES)
        return completion.choices[0].message.content, completion.usage.total_tokens
    text, tokens = "", None
    for chunk in create(model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        tokens = chunk.usage.total_tokens if chunk.usage else tokens
    return text, tokens


def call_anthropic(call):
    client = anthropic.Anthropic(base_url=site, api_key=key, max_retries=int(retries))
    arguments = {"model": "m", "max_tokens": 100, "messages": MESSAGES}
    if call == "whole":
        message = client.messages.create(**arguments)
    else:
        with client.messages.stream(**arguments) as stream:
            message = stream.get_final_message()
    return message.content[0].text, message.usage.input_tokens + message.usage.output_tokens


time.sleep = sleep
for name in calls:
    try:
        text, tokens = call_openai(name) if sdk == "openai" else call_anthropic(name)
        write(text=text, tokens=tokens)
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        write(
            error=type(error).__name__,
            status=error.status_code,
            message=error.message,
            type=error.type,
            code=getattr(error, "code", None),
            request_id=error.request_id,
        )
