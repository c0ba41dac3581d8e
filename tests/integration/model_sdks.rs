//! The SDKs of model APIs as clients: what they raise for refusals, how long they wait, and what their streams are charged.

use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::run;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

const KEY: &str = "the-key-of-the-app";

/// A call reserves 10 tokens. Where the window ends tomorrow, in place of 20 s is 24 h.
const RULES: &str = "
headers: { retry_after_spread: 0% }
quotas: { tokens: { limit: 100, window: { fixed: 20s }, cost_json: COST } }
classes:
  - { name: app, when: { api_key: { header: Authorization, value: Bearer the-key-of-the-app } } }
  - { name: nokey, block: true, refuse_with: 401 }
routes: [{ match: '/v1/**', method: POST, stream: true, cost: { tokens: 10 } }]
error_pages: { 4xx: { json: SDK }, 5xx: { json: SDK } }
";

/// An SDK, with the API that it calls.
struct Sdk {
    name: &'static str,
    /// Value of `cost_json`.
    cost: &'static str,
    /// A response of 60 tokens, and a stream of 40.
    whole: &'static str,
    stream: &'static str,
}

const OPENAI: Sdk = Sdk {
    name: "openai",
    cost: "usage.total_tokens",
    whole: r#"{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}"#,
    stream: concat!(
        r#"data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"hel"}}],"usage":null}"#,
        "\n\n",
        r#"data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"lo"}}],"usage":null}"#,
        "\n\n",
        r#"data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":20,"total_tokens":40}}"#,
        "\n\ndata: [DONE]\n\n",
    ),
};

const ANTHROPIC: Sdk = Sdk {
    name: "anthropic",
    cost: "[message.usage.input_tokens, usage.input_tokens, usage.output_tokens]",
    whole: r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":20,"output_tokens":40}}"#,
    stream: concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,"output_tokens":1}}}"#,
        "\n\nevent: content_block_start\n",
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
        "\n\nevent: content_block_stop\n",
        r#"data: {"type":"content_block_stop","index":0}"#,
        "\n\nevent: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":20}}"#,
        "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ),
};

#[test]
fn openai_raises_its_errors_and_retries_when_the_quota_is_back() {
    check_calls(&OPENAI, |refused| {
        assert_eq!(
            refused["message"],
            "Error code: 429 - The quota of this period is used up. Try again in 20 seconds."
        );
        assert_eq!((&refused["type"], &refused["code"]), (&"insufficient_quota".into(), &"insufficient_quota".into()));
    });
}

#[test]
fn anthropic_raises_its_errors_and_retries_when_the_quota_is_back() {
    check_calls(&ANTHROPIC, |refused| {
        let message = refused["message"].as_str().expect("text");
        assert!(message.contains("The quota of this period is used up. Try again in 20 seconds."), "{message}");
        assert_eq!(refused["type"], "rate_limit_error");
    });
}

/// Spends the quota with a response and a stream, and checks the refusals that follow. `check_refused` checks the error.
fn check_calls(sdk: &Sdk, check_refused: fn(&Value)) {
    let clients = InstalledClients::locate();
    let origin = sdk.origin();
    let gateway = TestGateway::with_rules(origin.address(), &sdk.rules());
    let used = || gateway.state()["quotas"][0]["used"].as_f64().expect("a number");
    let call = |key: &str, retries: u32, calls: &[&str]| sdk.run(&clients, &gateway, key, retries, calls);

    assert_eq!(call(KEY, 0, &["whole"]), [json!({ "text": "hello", "tokens": 60 })]);
    wait_until("the response to be charged", || used() == 60.0);
    assert_eq!(call(KEY, 0, &["streamed"]), [json!({ "text": "hello", "tokens": 40 })]);
    wait_until("the stream to be charged", || used() == 100.0);

    let refused = call(KEY, 0, &["whole", "streamed"]);
    for error in &refused {
        assert_eq!((&error["error"], &error["status"]), (&"RateLimitError".into(), &429.into()));
        check_refused(error);
    }
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert_eq!(call(KEY, 2, &["whole"]), [json!({ "wait": 20.0 }), json!({ "text": "hello", "tokens": 60 })]);

    let denied = call("a-key-of-nobody", 2, &["whole"]);
    assert_eq!(denied.len(), 1, "a key is not tried again: {denied:?}");
    assert_eq!((&denied[0]["error"], &denied[0]["status"]), (&"AuthenticationError".into(), &401.into()));
    let message = denied[0]["message"].as_str().expect("text");
    assert!(message.contains("The request has no valid API key."), "{message}");
    assert_eq!(origin.received_requests().len(), 3, "the origin sees no refused call");

    let log = gateway.read_log();
    for (error, reason) in [(&refused[0], "quota"), (&denied[0], "blocked")] {
        let line = log.iter().find(|line| line["id"] == error["request_id"]).expect("the id is that of the decision");
        assert_eq!((&line["reason"], &line["status"]), (&reason.into(), &error["status"]));
    }
}

#[test]
fn a_long_wait_is_raised_at_once() {
    let clients = InstalledClients::locate();
    for sdk in [OPENAI, ANTHROPIC] {
        let origin = sdk.origin();
        let gateway = TestGateway::with_rules(origin.address(), &sdk.rules().replace("fixed: 20s", "fixed: 24h"));
        gateway.set_used("tokens", 100);
        let refused = sdk.run(&clients, &gateway, KEY, 2, &["whole"]);
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0]["error"], "RateLimitError");
        assert!(
            refused[0]["message"].as_str().is_some_and(|text| text.contains("Try again in 12 hours.")),
            "{refused:?}"
        );
    }
}

#[test]
fn other_statuses_are_errors_of_their_kind() {
    let clients = InstalledClients::locate();
    for (sdk, unreachable) in [(OPENAI, "InternalServerError"), (ANTHROPIC, "InternalServerError")] {
        let rules = sdk.rules().replace("refuse_with: 401", "refuse_with: 403");
        let gateway = TestGateway::with_rules(Origin::unreachable(), &rules);
        let denied = sdk.run(&clients, &gateway, "a-key-of-nobody", 2, &["whole"]);
        assert_eq!((denied.len(), &denied[0]["error"]), (1, &"PermissionDeniedError".into()), "{denied:?}");
        let failed = sdk.run(&clients, &gateway, KEY, 1, &["whole"]);
        assert_eq!(
            (failed.len(), &failed[0]["wait"], &failed[1]["error"]),
            (2, &5.0.into(), &unreachable.into()),
            "{failed:?}"
        );
    }
}

/// The first file of the guide, with a key that is made as it says. Of Anthropic, with the changes that it names.
#[test]
fn file_of_the_guide_charges_a_key_by_the_usage_of_its_streams_until_its_budget_is_used() {
    const OF_ANTHROPIC: [(&str, &str); 4] = [
        ("json: openai", "json: anthropic"),
        ("[usage.total_tokens, response.usage.total_tokens]", ANTHROPIC.cost),
        ("match: /v1/chat/completions", "match: /v1/messages"),
        ("[max_tokens, max_completion_tokens]", "max_tokens"),
    ];
    let guide = include_str!("../../docs/guides/MODEL_API.md");
    let (_, yaml) = guide.split_once("```yaml\n").expect("the guide has a file");
    let (yaml, text) = yaml.split_once("```").expect("the block ends");
    assert!(text.contains("`tidegate keys add acme --class app`"), "{text}");
    let large = |text: &'static str, amounts: &[(&str, &str)]| -> &'static str {
        amounts.iter().fold(text.to_owned(), |text, (small, large)| replaced(&text, small, large)).leak()
    };
    let clients = InstalledClients::locate();
    for (sdk, changes, amounts) in [
        (
            OPENAI,
            &[][..],
            [("total_tokens\":60", "total_tokens\":300000"), ("total_tokens\":40", "total_tokens\":200000")],
        ),
        (
            ANTHROPIC,
            &OF_ANTHROPIC,
            [("output_tokens\":40", "output_tokens\":299980"), ("{\"output_tokens\":20", "{\"output_tokens\":199980")],
        ),
    ] {
        let sdk = Sdk { whole: large(sdk.whole, &amounts[..1]), stream: large(sdk.stream, &amounts[1..]), ..sdk };
        let dir = tempfile::tempdir().expect("temporary directory");
        let [file, keys] = ["tidegate.yaml", "keys.yaml"].map(|name| dir.path().join(name).display().to_string());
        let yaml = changes.iter().fold(yaml.to_owned(), |yaml, (from, to)| replaced(&yaml, from, to));
        std::fs::write(&file, &yaml).expect("the directory is writable");
        let made = run(&["keys", "add", "acme", "--class", "app", "--config", &file], b"");
        assert_eq!((made.code, made.errors.as_str()), (0, ""));
        let key = made.output.trim();

        let origin = sdk.origin();
        let rules = replaced(&replaced(&yaml, "http://127.0.0.1:4000", "ORIGIN"), "keys.yaml", &keys);
        let gateway = TestGateway::with_rules(origin.address(), &rules);
        let used = || gateway.state()["quotas"][0]["used"].as_f64().expect("a number");
        let call = |key: &str, retries: u32, calls: &[&str]| sdk.run(&clients, &gateway, key, retries, calls);
        assert_eq!(call(key, 0, &["whole"]), [json!({ "text": "hello", "tokens": 300_000 })]);
        wait_until("the response to be charged", || used() == 300_000.0);
        assert_eq!(call(key, 0, &["streamed"]), [json!({ "text": "hello", "tokens": 200_000 })]);
        wait_until("the stream to be charged", || used() == 500_000.0);

        for error in call(key, 0, &["whole", "streamed"]) {
            assert_eq!((&error["error"], &error["status"]), (&"RateLimitError".into(), &429.into()), "{error}");
        }
        let denied = call("tg_of_nobody", 2, &["whole"]);
        assert_eq!((denied.len(), &denied[0]["error"]), (1, &"AuthenticationError".into()), "{denied:?}");
        // Twenty seconds before midnight, the SDK waits, and the new day has a new budget.
        gateway.clock.advance(Duration::from_secs(12 * 3600 - 20));
        let retried = call(key, 2, &["whole"]);
        assert!(retried[0]["wait"].as_f64().is_some_and(|wait| (20.0..30.0).contains(&wait)), "{retried:?}");
        assert_eq!(retried[1..], [json!({ "text": "hello", "tokens": 300_000 })]);
        assert_eq!(origin.received_requests().len(), 3, "the origin sees no refused call");
    }
}

/// Replaces a text, which is there.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from} in {text}");
    text.replace(from, to)
}

impl Sdk {
    /// Returns an origin with the API.
    fn origin(&self) -> Origin {
        let Self { whole, stream, .. } = *self;
        Origin::with_script(move |request, connection| {
            let body = connection.read_body(request);
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            match body["stream"] == true {
                false => connection.reply("200 OK", "Content-Type: application/json\r\n", whole.as_bytes()),
                true => connection.reply("200 OK", "Content-Type: text/event-stream\r\n", stream.as_bytes()),
            }
        })
    }

    fn rules(&self) -> String {
        RULES.replace("COST", self.cost).replace("SDK", self.name)
    }

    /// Makes `calls` with `key`, and returns their results and the waits of the SDK, by which it advances the clock.
    fn run(
        &self,
        clients: &InstalledClients,
        gateway: &TestGateway,
        key: &str,
        retries: u32,
        calls: &[&str],
    ) -> Vec<Value> {
        let address: SocketAddr = gateway.address();
        let mut command = clients.python("model_sdk.py");
        command.args([self.name, &format!("http://{address}"), key, &retries.to_string()]).args(calls);
        command.env("NO_PROXY", "127.0.0.1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("program runs");
        let mut answers = process.stdin.take().expect("piped");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let read = |line: std::io::Result<String>| {
            let result: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
            if let Some(seconds) = result["wait"].as_f64() {
                gateway.clock.advance(Duration::from_secs_f64(seconds));
                answers.write_all(b"\n").expect("the program reads");
            }
            result
        };
        let results = lines.map(read).collect();
        assert!(process.wait().expect("a status").success());
        results
    }
}
