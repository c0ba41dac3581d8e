//! Fields of an access log line and their values, as listed in docs/reference/ACCESS_LOG.md. The doc comments of
//! [`NativeLine`](super::read::NativeLine) describe the fields.
//!
//! A test compares the tables with the lines that [`LineWriter`](super::LineWriter) produces.

pub use super::read::LOG_FIELDS;

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

/// Names of the fields that some lines do not have.
pub const OPTIONAL_LOG_FIELDS: [&str; 21] = [
    "fetch_mode",
    "fetch_site",
    "hints_brand",
    "zstd",
    "hints_major",
    "session",
    "session_id",
    "purpose",
    "country",
    "asn",
    "field_classes",
    "customer",
    "trace_id",
    "json",
    "fields",
    "unexpected_cost",
    "switch",
    "fill",
    "retry_seq",
    "origin",
    "cut",
];

/// Names of the fields of a request that was rejected.
pub const REJECTED_LOG_FIELDS: [&str; 15] = [
    "time",
    "started_us",
    "id",
    "client",
    "method",
    "host",
    "path",
    "query",
    "version",
    "status",
    "bytes",
    "user_agent",
    "referer",
    "verdict",
    "problem",
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
pub const VERDICTS: [LogValue; 3] = [
    value("admitted", "The request was admitted. A rule in shadow mode may have refused it."),
    value("refused", "The request was refused; `reason` names the rule."),
    value("rejected", "The request is invalid, and no rule has decided on it; `problem` says what is wrong with it."),
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
    value("beyond_people:PAGES/LIMIT", "The session asks for more costly pages a day than people of the site do."),
    value("address_list:NAME", "The client is in its class because of this address list."),
    value("api_key", "The client sent a known key of the class."),
    value("certificate", "The client's certificate has a name of the class."),
];

const fn value(value: &'static str, meaning: &'static str) -> LogValue {
    LogValue { value, meaning }
}
