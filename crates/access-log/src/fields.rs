//! Fields of an access log line and their values, as listed in docs/reference/ACCESS_LOG.md.
//!
//! A test compares the tables with the lines that [`LineWriter`](super::LineWriter) produces.

use tidegate_policy::{ClientKind, Reason};

/// A field of an access log line.
#[derive(Clone, Copy, Debug)]
pub struct LogField {
    /// Name of the field.
    pub name: &'static str,
    /// JSON type of the value.
    pub json_type: &'static str,
    /// Meaning of the value, as sentences.
    pub meaning: &'static str,
}

/// A value of a field from a closed list.
#[derive(Clone, Copy, Debug)]
pub struct LogValue {
    /// Text of the value. A part in capitals stands for a name.
    pub value: &'static str,
    /// Meaning of the value, as sentences.
    pub meaning: &'static str,
}

/// Name of the only field that some lines do not have.
pub const OPTIONAL_LOG_FIELDS: [&str; 5] = ["unexpected_cost", "switch", "fill", "retry_seq", "cut"];

/// All fields of an access log line, in order.
pub const LOG_FIELDS: &[LogField] = &[
    field("time", "time", "Time of the verdict."),
    field(
        "settled",
        "time",
        "Time of settlement, when the response was sent. For a request of another proxy (`forward_auth`), when its cost was known.",
    ),
    field(
        "started_us",
        "integer",
        "Start of the process, in microseconds since 1970. Replay detects a restart by it, after which clients and \
         shares start again.",
    ),
    field("id", "string", "Id of the decision, 16 hexadecimal digits, as sent to the client in `X-Tidegate-Decision`."),
    field("client", "string", "Address of the client."),
    field(
        "key",
        "string",
        "Key of the client's bucket: an IPv4 address, the first address of an IPv6 prefix, an operator or the class. \
         For a bucket by header or cookie it is `hash:...`, the same for the same value until the restart.",
    ),
    field("method", "string", "Request method."),
    field("host", "string", "Requested host."),
    field("path", "string", "Path as sent, not normalized."),
    field("query", "string or null", "Query without the question mark. It is null if there was none."),
    field("version", "string", "HTTP version of the client: `1.0`, `1.1` or `2`."),
    field("status", "integer", "Response status."),
    field("bytes", "integer", "Number of response body bytes sent."),
    field("user_agent", "string", "User agent as sent. It is empty if there was none."),
    field("referer", "string or null", "`Referer` as sent."),
    field(
        "headers_seen",
        "list of string",
        "Names of the headers that the policy read, including the header or cookie of a known key; never their values.",
    ),
    field(
        "tls",
        "boolean or null",
        "True if the client used TLS, possibly to a proxy in front of the gateway. It is null if the headers were not \
         examined; a header that `headers_seen` does not list may then have been present.",
    ),
    field(
        "http_10",
        "boolean or null",
        "True if the client itself used HTTP/1.0. It is null if the headers were not examined.",
    ),
    field("kind", "string", "[Kind](#kind) of the client."),
    field("class", "string", "Name of the client's class."),
    field("operator", "string or null", "Operator of the crawler. It is null unless verified."),
    field(
        "evidence",
        "list of string",
        "Reasons of the classification, up to seven [entries](#evidence) in order; strongest last.",
    ),
    field("route", "string", "Route of the request, as its `match` is written."),
    field(
        "cost",
        "object of number",
        "Units reserved at admission, by quota. For a refused request they are what it would have cost.",
    ),
    field("charged", "object of number", "Units charged at settlement, by quota."),
    field(
        "unexpected_cost",
        "object of number",
        "Units charged for a cost that the origin reported in `cost_header` although the route has no cost in the quota, \
         by quota. The field is absent if there are none.",
    ),
    field("verdict", "string", "[Verdict](#verdict) on the request."),
    field("reason", "string or null", "[Reason](#reason) of the refusal. It is null if the request was admitted."),
    field(
        "shadow_reason",
        "string or null",
        "[Reason](#reason) of the first rule in shadow mode (`enforce: false`) that would have refused an admitted \
         request.",
    ),
    field(
        "switch",
        "string",
        "Switch of an administrator that applied to the client: `block`, `allow` or `maintenance`. The field is absent if \
         none did.",
    ),
    field(
        "fill",
        "string",
        "Reason of a request that the gateway made itself to fill the cache: `warm` (`tidegate cache warm`) or `refresh` \
         (`cache.refresh`). Its class is the one that it was made for. The field is absent for requests of clients.",
    ),
    field("retry_after_s", "integer or null", "`Retry-After` sent to the client, in seconds."),
    field(
        "tier",
        "integer or null",
        "Number of tiers that the class had entered, the highest of all quotas. It is null if no quota was evaluated.",
    ),
    field(
        "guard_admitted",
        "boolean",
        "True if a tier or the pacing plan refused the request and the crawler guard admitted it.",
    ),
    field(
        "bot_score",
        "integer or null",
        "Bot score of the client, also below the threshold. It is null if the client has no profile.",
    ),
    field(
        "used",
        "object of number",
        "Settled plus reserved units after the decision, by quota, including the request's own if admitted. Replay \
         follows corrections, the origin's counter and other instances by it. The metric `tidegate_quota_used` \
         excludes reserved units.",
    ),
    field(
        "seq",
        "object of integer",
        "Sequence number of the decision, by quota; of an `unexpected_cost`, of its settlement. It sorts lines into the \
         order of admission.",
    ),
    field(
        "settle_seq",
        "object of integer",
        "Sequence number of the settlement, by quota, counted with the decisions, also of an `unexpected_cost`. It shows \
         which units were reserved at which time.",
    ),
    field(
        "retry_seq",
        "object of integer or null",
        "Sequence number of the charge for a second attempt, by quota. The field is absent if there was no second \
         attempt.",
    ),
    field(
        "bucket_seq",
        "integer or null",
        "Sequence number of the decision on the client's bucket. It is null if the class has no bucket.",
    ),
    field("scope", "string or null", "Scope that refused the request (`reason` is `throttle` or `backoff`)."),
    field("scope_wait_ms", "number", "Time of the request in the queue of its scopes, in milliseconds."),
    field(
        "origin_ms",
        "number or null",
        "Time until the head of the origin's response was received or the request failed, in milliseconds. It is null \
         if no request was sent to the origin.",
    ),
    field(
        "total_ms",
        "number",
        "Time from the first byte of the request to the last byte of the response, in milliseconds. For a request of another \
         proxy, to the answer.",
    ),
    field(
        "cut",
        "string",
        "Why the response ended before its end: `response_timeout` (the gateway ended it, because the origin sent no part of \
         it for that time), `origin` (the origin ended it) or `too_many_unread` (the gateway ended it, because its client left \
         256 others unread). The field is absent for all other responses.",
    ),
    field(
        "cache",
        "string or null",
        "Result of the cache: `hit` (a fresh copy was sent), `stale` (a stale copy, also in place of a refusal), \
         `revalidated` (the origin confirmed the copy), `miss` (the origin responded, and the response may be stored) or \
         `bypass` (the request does not use the cache). It is null on a route that is not cached.",
    ),
];

/// Values of `kind`.
pub const KINDS: [LogValue; ClientKind::ALL.len()] = [
    value(ClientKind::Human.name(), "No evidence of a bot."),
    value(ClientKind::VerifiedBot.name(), "A bot with a proven operator."),
    value(ClientKind::DeclaredBot.name(), "A bot that declares itself, without proof."),
    value(ClientKind::SuspectedBot.name(), "An undeclared bot, detected by its behavior."),
    value(ClientKind::Impostor.name(), "A bot that claims an operator whose exhaustive data do not cover it."),
];

/// Values of `verdict`.
pub const VERDICTS: [LogValue; 2] = [
    value("admitted", "The request was admitted. A rule in shadow mode may have refused it."),
    value("refused", "The request was refused; `reason` names the rule."),
];

/// Values of `reason` and `shadow_reason`.
pub const REASONS: [LogValue; Reason::ALL.len()] = {
    let mut values = [value("", ""); Reason::ALL.len()];
    let mut index = 0;
    while index < values.len() {
        let row = Reason::ALL[index].row();
        values[index] = value(row.name, row.meaning);
        index += 1;
    }
    values
};

/// Values of `evidence`. The words are those of [`EvidenceWord`](super::EvidenceWord).
pub const EVIDENCE: &[LogValue] = &[
    value("user_agent_rule:PATTERN", "The rule of `user_agent_rules` with this pattern matches."),
    value("no_user_agent", "The client sent no user agent."),
    value("user_agent_no_match", "The user agent names no bot."),
    value("user_agent_match:NAME", "The user agent names this bot."),
    value("user_agent_heuristic", "The user agent names no listed bot and has the form of a bot's."),
    value("address_verified:OPERATOR", "The operator publishes the address. The kind is `verified_bot`."),
    value(
        "address_mismatch:OPERATOR",
        "All of the operator's crawlers are in its ranges, and this address is not. The kind is `impostor`.",
    ),
    value(
        "address_private:OPERATOR",
        "The address is loopback, private, link-local or shared (100.64.0.0/10): that of a proxy, or of a machine of \
         the administrator. The kind is `declared_bot`.",
    ),
    value(
        "dns_verified:OPERATOR",
        "The address has a DNS name of the operator, and the name resolves to the address. The kind is `verified_bot`.",
    ),
    value(
        "dns_mismatch:OPERATOR",
        "All of the operator's crawlers have its DNS names, and this address does not. The kind is `impostor`.",
    ),
    value(
        "signature_valid:OPERATOR",
        "The operator's key verifies the signature. The kind is `verified_bot`, unless the user agent claims another \
         operator that excludes the address.",
    ),
    value(
        "signature_unknown:OPERATOR",
        "The operator's keys are not loaded yet, or the key is not among them. The kind is `declared_bot`, or as the \
         address proves.",
    ),
    value(
        "signature_unknown",
        "The keys of an agent without a known operator are not loaded, or the key is not among them. A signature in \
         an agent's name declares a bot: a browser that sends one is a `declared_bot`.",
    ),
    value(
        "signature_invalid:OPERATOR",
        "The signature is expired, replayed, for another site, or made with another key. The kind is as for \
         `signature_unknown`, but `impostor` if the operator's ranges are exhaustive and do not contain the address.",
    ),
    value(
        "signature_invalid",
        "The signature of an agent without a known operator is invalid. The kind is `declared_bot`, as for a valid \
         one.",
    ),
    value(
        "signature_unlisted",
        "The signature is valid, and its agent belongs to no known operator (only with \
         `verify.signatures.fetch_unlisted_keys`). The kind is `declared_bot`.",
    ),
    value(
        "signature_malformed",
        "The signature fields cannot be parsed or name no agent. They have no effect on the kind.",
    ),
    value("behavior:SIGNAL", "A behavior signal; up to three, strongest last."),
    value("address_list:NAME", "The client is in its class because of this address list."),
    value("api_key", "The client sent a known key of the class."),
    value("certificate", "The client's certificate has a name of the class."),
];

const fn field(name: &'static str, json_type: &'static str, meaning: &'static str) -> LogField {
    LogField { name, json_type, meaning }
}

const fn value(value: &'static str, meaning: &'static str) -> LogValue {
    LogValue { value, meaning }
}
