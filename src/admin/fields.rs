//! Fields of the JSON documents of the admin API that no type describes, for docs/reference/ADMIN_API.md. The doc comments
//! of [`state`](super::state) and [`cache`](super::cache) describe all others.
//!
//! A test compares both with the responses of a running gateway. In a path, `[]` stands for the items of a list.

/// A field of a JSON document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentField {
    /// Path from the top of the document.
    pub path: &'static str,
    /// JSON type of the value.
    pub json_type: &'static str,
    /// Meaning of the value, as sentences.
    pub meaning: &'static str,
}

/// Fields of an explanation.
pub const EXPLANATION_FIELDS: &[DocumentField] = &[
    field("request", "object", "The explained request."),
    field("request.time", "time", "Time of arrival."),
    field("request.decision", "string or null", "Id of the decision. It is null for a hypothetical request."),
    field("request.method", "string", "Request method."),
    field("request.host", "string", "Requested host; empty if unknown."),
    field("request.path", "string", "Normalized path, as rules match it."),
    field("request.query", "string or null", "Query without the question mark."),
    field("request.client", "string", "Address of the client."),
    field("request.user_agent", "string", "User agent; empty if none was sent."),
    field("steps", "list of object", "All steps, in processing order."),
    field(
        "steps[].step",
        "string",
        "Stage: `identity`, `class`, `route`, `exempt`, `switch`, `block`, `bucket`, `cache`, `share`, `tier`, `pacing`, `quota` or `throttle`.",
    ),
    field("steps[].quota", "string or null", "Quota of a tier, pacing or quota step."),
    field(
        "steps[].finding",
        "string",
        "Result: `info`, `passed`, `refused`, `shadow` (would refuse if enforced), `depends` (on earlier requests), \
         `skipped` (the request was already refused) or `unknown` (known only to a running gateway).",
    ),
    field("steps[].message", "string", "The result as a sentence."),
    field("steps[].evidence", "list of string", "Evidence, one sentence each."),
    field("steps[].numbers", "object", "Inputs of the step. The following fields depend on the stage."),
    field("steps[].numbers.client", "string", "Identity: address of the client."),
    field("steps[].numbers.peer", "string", "Identity: address of the peer."),
    field("steps[].numbers.class", "string", "Class: name of the class."),
    field("steps[].numbers.kind", "string", "Class: kind of the client."),
    field("steps[].numbers.operator", "string or null", "Class: verified operator."),
    field("steps[].numbers.route", "string", "Route: `match` of the route."),
    field("steps[].numbers.cost", "number or object of number", "Route: units by quota. Quota: units of the request."),
    field("steps[].numbers.capacity", "integer", "Bucket: maximum number of tokens."),
    field("steps[].numbers.tokens", "number", "Bucket: tokens left. Pacing: units that the class may use at once."),
    field("steps[].numbers.used", "number", "Tier: units used and reserved before the request."),
    field("steps[].numbers.limit", "number", "Tier and quota: limit of the quota, in units."),
    field("steps[].numbers.tier", "integer", "Tier: number of tiers that the class has entered."),
    field("steps[].numbers.shed", "number", "Tier: share of the class's requests that the tier refuses, 0 to 1."),
    field("steps[].numbers.remaining", "number", "Quota: units remaining before the request."),
    field("steps[].numbers.resets_at", "time", "Quota: end of the window."),
    field("steps[].numbers.mode", "string", "Pacing: `even` or `learned`."),
    field("steps[].numbers.burst", "number", "Pacing: units that the class may use ahead of its plan."),
    field("steps[].numbers.planned", "number", "Pacing: units that the plan would have used."),
    field("steps[].numbers.earmarked", "number", "Pacing: units earmarked for unpaced classes."),
    field(
        "steps[].numbers.admit_share",
        "number",
        "Pacing: share of the class's requests that the plan admits, 0 to 1.",
    ),
    field("steps[].numbers.refill_per_hour", "number", "Pacing: units that the class gains per hour."),
    field("steps[].numbers.waited_ms", "number", "Throttle: time in the queue, in milliseconds."),
    field("steps[].numbers.scope", "string", "Throttle: scope that refused the request."),
    field("steps[].rule", "object or null", "Setting that decided."),
    field("steps[].rule.path", "string", "Path of keys from the top of the file."),
    field(
        "steps[].rule.at",
        "string or null",
        "`FILE:LINE:COL`, or the variable or option that sets it. It is null for a default.",
    ),
    field(
        "responses",
        "list of object",
        "The response. If it depends on earlier requests, there are two: one if the request is admitted, one if it is \
         refused.",
    ),
    field("responses[].verdict", "string", "`admitted` or `refused`."),
    field("responses[].reason", "string or null", "[Reason](ACCESS_LOG.md#reason) of the refusal."),
    field(
        "responses[].shadow",
        "string or null",
        "[Reason](ACCESS_LOG.md#reason) for which a rule in shadow mode would have refused the request.",
    ),
    field("responses[].status", "integer or null", "Response status. It is null if the origin determines it."),
    field(
        "responses[].retry_after_s",
        "integer or null",
        "`Retry-After` in seconds, without `headers.retry_after_spread`.",
    ),
    field("responses[].headers", "object of string", "Response headers that announce limits, by name."),
    field(
        "responses[].depends_on",
        "list of string",
        "Conditions on earlier requests that determine the verdict; empty if it does not depend on them.",
    ),
    field(
        "remedies",
        "list of object",
        "Changes, each of which alone would admit the request; empty if it is admitted.",
    ),
    field(
        "remedies[].change",
        "string",
        "Kind: `proof` (verification), `used` (lower usage), `position` (another position among the requests of the class), \
         `time`, `cost`, `class`, `limit` or `weight`.",
    ),
    field("remedies[].message", "string", "The change as a sentence."),
    field("remedies[].numbers", "object", "Machine-readable form. The following fields depend on the kind."),
    field("remedies[].numbers.at", "time", "Time: earliest time of the retry."),
    field("remedies[].numbers.zone", "string", "Time: time zone of the quota's window."),
    field("remedies[].numbers.operator", "string", "Proof: operator to verify."),
    field("remedies[].numbers.class", "string", "Proof: class of the verified client."),
    field(
        "remedies[].numbers.used_at_most",
        "object of number",
        "Used: highest usage that admits the request, by quota.",
    ),
    field(
        "remedies[].numbers.admit_share",
        "number",
        "Position: share of the class's requests that is admitted, 0 to 1.",
    ),
    field("remedies[].numbers.cost_at_most", "number", "Cost: highest cost that admits the request, in units."),
    field("remedies[].numbers.classes", "list of string", "Class: classes of which the request would be admitted."),
    field(
        "remedies[].numbers.limit",
        "number",
        "Limit (`tidegate explain --log` only): limit that admits the request, in units.",
    ),
    field(
        "remedies[].numbers.weight",
        "integer",
        "Weight (`tidegate explain --log` only): weight that admits the request.",
    ),
    field("notes", "list of string", "Differences from the log, and fields missing in it."),
];

/// Fields of a problem document (RFC 9457).
pub const PROBLEM_FIELDS: &[DocumentField] = &[
    field("title", "string", "Name of the status."),
    field("status", "integer", "Response status."),
    field("detail", "string", "Cause, one line per error."),
];

const fn field(path: &'static str, json_type: &'static str, meaning: &'static str) -> DocumentField {
    DocumentField { path, json_type, meaning }
}
