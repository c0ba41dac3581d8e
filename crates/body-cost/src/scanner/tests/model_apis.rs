//! Responses of model APIs, as their documentation shows them.

use super::*;

const CHAT_COMPLETION: &str = r#"{
  "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT", "object": "chat.completion", "created": 1741569952,
  "model": "gpt-4.1-2025-04-14",
  "choices": [{
    "index": 0,
    "message": {
      "role": "assistant",
      "content": "Here: \"usage\":{\"total_tokens\":0}} \\\" {\"usage\":{\"total_tokens\":1}}",
      "refusal": null, "annotations": []
    },
    "logprobs": null, "finish_reason": "stop"
  }],
  "usage": {
    "prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
    "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
    "completion_tokens_details": { "reasoning_tokens": 0, "accepted_prediction_tokens": 0 }
  },
  "service_tier": "default"
}"#;

const CHAT_COMPLETION_CHUNKS: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"\"usage\":{\"total_tokens\":1}"},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}

data: [DONE]

"#;

const RESPONSE: &str = r#"{"id":"resp_67ccd2bed1ec","object":"response","status":"completed","output":[{"type":"message","id":"msg_1",
"content":[{"type":"output_text","text":"In a peaceful grove","annotations":[]}]}],
"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":123},"user":null,"metadata":{}}"#;

const RESPONSE_EVENTS: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[],"usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"delta":"Hi"}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[{"content":[{"text":"Hi"}]}],"usage":{"input_tokens":37,"output_tokens":11,"total_tokens":48}}}

"#;

const MESSAGE: &str = r#"{"id":"msg_013Zva2CMHLNnXjNJJKqJ2EF","type":"message","role":"assistant","content":[{"type":"text","text":"Hi!"}],
"stop_reason":"end_turn","stop_sequence":null,
"usage":{"input_tokens":25,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":15}}"#;

const MESSAGE_EVENTS: &str = r#"event: message_start
data: {"type": "message_start", "message": {"id": "msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY", "type": "message", "role": "assistant", "content": [], "stop_reason": null, "usage": {"input_tokens": 25, "output_tokens": 1}}}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}

event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": null}, "usage": {"output_tokens": 7}}

event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence":null}, "usage": {"output_tokens": 15}}

event: message_stop
data: {"type": "message_stop"}

"#;

const OLLAMA_LINES: &str = r#"{"model":"llama3.2","created_at":"2023-08-04T08:52:19.385406455-07:00","message":{"role":"assistant","content":"The"},"done":false}
{"model":"llama3.2","created_at":"2023-08-04T19:22:45.499127Z","message":{"role":"assistant","content":""},"done":true,"total_duration":4883583458,"prompt_eval_count":26,"eval_count":282}
"#;

#[test]
fn chat_completions_report_tokens() {
    let paths = paths(&[("usage.total_tokens", 1)]);
    assert_cost(&paths, BodyForm::Json, CHAT_COMPLETION, units(29));
    assert_cost(&paths, BodyForm::EventStream, CHAT_COMPLETION_CHUNKS, units(29));
    let without_usage = CHAT_COMPLETION_CHUNKS.split("data: {").take(4).collect::<Vec<_>>().join("data: {");
    assert_cost(&paths, BodyForm::EventStream, &without_usage, FoundCost::Missing);
}

#[test]
fn prompt_and_completion_tokens_have_weights() {
    let paths = paths(&[("usage.prompt_tokens", 1), ("usage.completion_tokens", 4)]);
    assert_cost(&paths, BodyForm::Json, CHAT_COMPLETION, units(19 + 4 * 10));
    assert_cost(&paths, BodyForm::EventStream, CHAT_COMPLETION_CHUNKS, units(19 + 4 * 10));
}

#[test]
fn responses_report_tokens() {
    assert_cost(&paths(&[("usage.total_tokens", 1)]), BodyForm::Json, RESPONSE, units(123));
    assert_cost(&paths(&[("response.usage.total_tokens", 1)]), BodyForm::EventStream, RESPONSE_EVENTS, units(48));
}

#[test]
fn messages_report_tokens_in_several_events() {
    let usage = [("usage.input_tokens", 1), ("usage.output_tokens", 5)];
    assert_cost(&paths(&usage), BodyForm::Json, MESSAGE, units(25 + 5 * 15));
    let paths = paths(&[("message.usage.input_tokens", 1), ("usage.output_tokens", 5)]);
    assert_cost(&paths, BodyForm::EventStream, MESSAGE_EVENTS, units(25 + 5 * 15));
}

#[test]
fn lines_report_tokens_at_the_end() {
    let paths = paths(&[("prompt_eval_count", 1), ("eval_count", 1)]);
    assert_cost(&paths, BodyForm::Lines, OLLAMA_LINES, units(308));
}
