//! Target of `tidegate explain`, parsed from the command line; all errors are reported together.

use super::log_line::LogLineRef;
use super::{ExplainArgs, time_arg};
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use jiff::tz::TimeZone;
use tidegate_policy::own_hosts::without_last_dot;
use tidegate_policy::tier::Share;
use tidegate_policy::{Timestamp, Units};
use tidegate_replay::explain::{AssumedUsage, Environment, HypotheticalRequest};

/// The decision or request to explain.
pub(super) enum ExplainTarget {
    /// A decision of a running gateway, by its id.
    Decision(String),
    /// A line of a log.
    Line(LogLineRef),
    /// A hypothetical request.
    Hypothetical(Uri),
}

impl ExplainTarget {
    pub(super) fn from_args(args: &ExplainArgs) -> Result<Self, String> {
        if !args.log.is_empty() {
            return LogLineRef::parse_refs(&args.log).map(Self::Line).map_err(|error| format!("--log: {error}"));
        }
        let example = "write https://example.com/item/42, /item/42, or the 16 digits of X-Tidegate-Decision";
        let Some(text) = &args.what else { return Err(format!("no URL, path or decision id; {example}")) };
        if text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return reject_request_options(args).map(|()| Self::Decision(text.clone()));
        }
        let is_url = |url: &Uri| text.starts_with('/') || matches!(url.scheme_str(), Some("http" | "https"));
        match text.parse::<Uri>().ok().filter(is_url) {
            Some(_) if args.assumption_args.is_some() => Err(
                "--actual-cost, --cache-ttl, --max-age, --latency, --retry-model, --reclassify, --learned and --reorder-window apply \
                 only to a line of a log; add --log FILE:LINE"
                    .into(),
            ),
            Some(url) => Ok(Self::Hypothetical(url)),
            None => Err(format!("{text:?} is not a URL, path or decision id; {example}")),
        }
    }
}

/// Returns an error for each option that describes a request; a decision by id has its own request.
fn reject_request_options(args: &ExplainArgs) -> Result<(), String> {
    let given = [
        ("--ip", args.ip.is_some()),
        ("--user-agent", args.user_agent.is_some()),
        ("-H", !args.header.is_empty()),
        ("--method", args.method.is_some()),
        ("--used", !args.used.is_empty()),
        ("--at", args.at.is_some()),
        (
            "--actual-cost, --cache-ttl, --max-age, --latency, --retry-model, --reclassify, --learned, --reorder-window",
            args.assumption_args.is_some(),
        ),
    ];
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    let errors: Vec<String> =
        given.map(|(option, _)| format!("{option}: not allowed with a decision id; remove it")).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// Builds the hypothetical request for `url`; an error has one line per invalid option.
pub(super) fn hypothetical(
    args: &ExplainArgs,
    url: Uri,
    environment: Environment<'_>,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<HypotheticalRequest, String> {
    let mut errors = Vec::new();
    let mut report = |error: String| errors.push(error);
    let peer = args.ip.unwrap_or_else(|| {
        report("--ip: missing; add the client's address, such as --ip 203.0.113.7".into());
        [0, 0, 0, 0].into()
    });
    if let (Some(host), Some(own)) = (url.host(), &environment.settings.hosts)
        && !own.contains(without_last_dot(&host.to_ascii_lowercase()))
    {
        report(format!("{host} is none of hosts, so the gateway answers 421; write one of {own}"));
    }
    let method = args.method.as_ref().map_or(Ok(Method::GET), |name| Method::from_bytes(name.as_bytes()));
    let method = method.unwrap_or_else(|_| {
        report(format!(
            "--method: {:?} is not a method; write it like GET",
            args.method.as_deref().unwrap_or_default()
        ));
        Method::GET
    });
    let at = args.at.as_ref().map_or(Ok(now), |text| time_arg::read(text, now, zone));
    let at = at.unwrap_or_else(|error| {
        report(format!("--at: {error}"));
        now
    });
    let mut sent = HeaderMap::new();
    for text in &args.header {
        match parse_header(text) {
            Some((name, value)) => drop(sent.append(name, value)),
            None => report(format!("-H: {text:?} is not a header; write it like 'X-Api-Key: abc'")),
        }
    }
    if let Some(text) = &args.user_agent {
        match HeaderValue::from_str(text) {
            Ok(value) => drop(sent.insert(USER_AGENT, value)),
            Err(_) => report("--user-agent: contains control characters; remove them".into()),
        }
    }
    let used = parse_used_options(args, environment).unwrap_or_else(|errors| {
        report(errors);
        Vec::new()
    });
    let request = HypotheticalRequest { peer, method, url, headers: sent, at, used };
    if errors.is_empty() { Ok(request) } else { Err(errors.join("\n")) }
}

/// Parses all `--used` options; an error has one line per invalid option.
pub(super) fn parse_used_options(
    args: &ExplainArgs,
    environment: Environment<'_>,
) -> Result<Vec<(String, AssumedUsage)>, String> {
    let (mut parsed, mut errors) = (Vec::new(), Vec::new());
    for text in &args.used {
        match parse_used(text, environment) {
            Ok(entry) => parsed.push(entry),
            Err(error) => errors.push(format!("--used: {error}")),
        }
    }
    if errors.is_empty() { Ok(parsed) } else { Err(errors.join("\n")) }
}

fn parse_header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, HeaderValue::from_str(value.trim()).ok()?))
}

/// Parses a value such as `api=5000` or `api=50%`.
fn parse_used(text: &str, environment: Environment<'_>) -> Result<(String, AssumedUsage), String> {
    let quotas = &environment.settings.rules.quotas;
    let name = text.split('=').next().unwrap_or_default();
    let Some(quota) = quotas.iter().find(|quota| quota.name == name) else {
        let names: Vec<&str> = quotas.iter().map(|quota| quota.name.as_str()).collect();
        let hint =
            if names.is_empty() { "no quota is configured".into() } else { format!("known: {}", names.join(", ")) };
        return Err(format!("unknown quota {name:?}; {hint}"));
    };
    let amount = &text[name.len()..];
    let amount = amount.strip_prefix('=').unwrap_or_default();
    let highest = quota.budget.as_ref().map_or(quota.limit, |budget| budget.highest_limit(quota.limit));
    let used = match amount.strip_suffix('%') {
        Some(percent) => percent.parse::<Units>().map(|percent| AssumedUsage::Share(share(percent))),
        None => amount.parse::<Units>().map(AssumedUsage::Units),
    };
    match used {
        Ok(AssumedUsage::Units(units)) if units > highest && quota.enforce => {
            Err(format!("{units} exceeds the limit of {name}; write at most {name}={highest}"))
        }
        Ok(used) => Ok((quota.name.clone(), used)),
        Err(_) => Err(format!("found {text:?}; write {name}=500 or {name}=50%")),
    }
}

/// Returns the share of `percent`, at most all.
fn share(percent: Units) -> Share {
    Share::from_millionths(u32::try_from(percent.milli().saturating_mul(10)).unwrap_or(u32::MAX))
}
