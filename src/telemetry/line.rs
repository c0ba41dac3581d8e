//! One finished request as one line of the access log.

use super::instant::InstantText;
use super::json::{self, HEX};
use super::record::{Charge, Names, Record};
use crate::policy::class::Evidence;
use crate::policy::{Reason, Units};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// Writes lines. Kept from one to the next for the sake of the dates.
#[derive(Clone, Debug, Default)]
pub struct LineWriter {
    admitted: InstantText,
    settled: InstantText,
}

impl LineWriter {
    /// Appends `record` to `out` as one line of JSON, with everything that `tidegate replay` needs to decide again.
    pub fn write_json(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        out.extend_from_slice(b"{\"time\":\"");
        self.admitted.write(out, record.admitted);
        out.extend_from_slice(b"\",\"settled\":\"");
        self.settled.write(out, record.settled);
        out.extend_from_slice(b"\",\"id\":\"");
        hexadecimal(out, record.id);
        client(out, record);
        request(out, record);
        classification(out, record);
        verdict(out, record);
        out.extend_from_slice(b",\"scope_wait_ms\":");
        json::milliseconds(out, record.scope_wait);
        out.extend_from_slice(b",\"origin_ms\":");
        match record.origin {
            Some(origin) => json::milliseconds(out, origin.took),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"total_ms\":");
        json::milliseconds(out, record.total);
        out.extend_from_slice(b",\"cache\":");
        json::string_or_null(out, record.cache.map(str::as_bytes));
        out.extend_from_slice(b"}\n");
    }
}

fn client(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b"\",\"client\":\"");
    address(out, record.client);
    out.extend_from_slice(b"\",\"key\":\"");
    match u32::try_from(record.key.number()) {
        Ok(v4) => ipv4(out, v4.into()),
        Err(_) => write_infallibly(out, format_args!("{}", record.key)),
    }
}

fn request(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b"\",\"method\":");
    json::string(out, record.method.as_str().as_bytes());
    out.extend_from_slice(b",\"host\":");
    json::string(out, record.host.as_bytes());
    out.extend_from_slice(b",\"path\":");
    json::string(out, record.path.as_bytes());
    out.extend_from_slice(b",\"query\":");
    json::string_or_null(out, record.query.map(str::as_bytes));
    out.extend_from_slice(b",\"version\":\"");
    out.extend_from_slice(version(record.version).as_bytes());
    out.extend_from_slice(b"\",\"status\":");
    json::number(out, record.status);
    out.extend_from_slice(b",\"bytes\":");
    json::number(out, record.bytes);
    out.extend_from_slice(b",\"user_agent\":");
    json::string(out, record.user_agent);
    out.extend_from_slice(b",\"referer\":");
    json::string_or_null(out, record.referer);
    out.extend_from_slice(b",\"headers_seen\":[");
    for (place, name) in record.headers_seen.iter().enumerate() {
        comma(out, place);
        json::string(out, name.as_bytes());
    }
}

fn classification(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b"],\"kind\":\"");
    out.extend_from_slice(record.kind.name().as_bytes());
    out.extend_from_slice(b"\",\"class\":");
    json::string(out, record.class_name.as_bytes());
    out.extend_from_slice(b",\"operator\":");
    json::string_or_null(out, record.operator.map(str::as_bytes));
    out.extend_from_slice(b",\"evidence\":[");
    for (place, found) in record.evidence.iter().flatten().enumerate() {
        comma(out, place);
        evidence(out, *found, record.names);
    }
    out.extend_from_slice(b"],\"route\":");
    json::string(out, record.route.as_bytes());
}

fn verdict(out: &mut Vec<u8>, record: &Record<'_>) {
    amounts(out, b",\"cost\":{", record.charges, |charge| charge.expected);
    amounts(out, b",\"charged\":{", record.charges, |charge| charge.settled);
    out.extend_from_slice(b",\"verdict\":\"");
    out.extend_from_slice(record.outcome.verdict().as_bytes());
    out.extend_from_slice(b"\",\"reason\":");
    reason(out, record.outcome.reason());
    out.extend_from_slice(b",\"shadow\":");
    reason(out, record.outcome.shadow());
    out.extend_from_slice(b",\"retry_after_s\":");
    json::number_or_null(out, record.retry_after_s);
    out.extend_from_slice(b",\"tier\":");
    json::number_or_null(out, record.tier);
    amounts(out, b",\"used\":{", record.charges, |charge| charge.used);
    of_each_quota(out, b",\"turn\":{", record.charges, |out, charge| json::number(out, charge.turn));
}

fn amounts(out: &mut Vec<u8>, opening: &[u8], charges: &[Charge<'_>], amount: fn(&Charge<'_>) -> Units) {
    of_each_quota(out, opening, charges, |out, charge| json::units(out, amount(charge)));
}

fn of_each_quota(out: &mut Vec<u8>, opening: &[u8], charges: &[Charge<'_>], write: impl Fn(&mut Vec<u8>, &Charge<'_>)) {
    out.extend_from_slice(opening);
    for (place, charge) in charges.iter().enumerate() {
        comma(out, place);
        json::string(out, charge.quota.as_bytes());
        out.push(b':');
        write(out, charge);
    }
    out.push(b'}');
}

fn reason(out: &mut Vec<u8>, reason: Option<Reason>) {
    json::string_or_null(out, reason.map(|reason| reason.name().as_bytes()));
}

/// `names_bot:GPTBot`: what was found, and whose name it bears.
fn evidence(out: &mut Vec<u8>, found: Evidence, names: &dyn Names) {
    let (what, whose) = match found {
        Evidence::AgentRule(place) => ("agent_rule", Some(names.agent_rule(place))),
        Evidence::NoUserAgent => ("no_user_agent", None),
        Evidence::NamesNoBot => ("names_no_bot", None),
        Evidence::NamesBot(bot) => ("names_bot", Some(names.bot(bot))),
        Evidence::ShapedLikeBot => ("shaped_like_bot", None),
        Evidence::AddressPublished(operator) => ("address_published", Some(names.operator(operator))),
        Evidence::AddressForeign(operator) => ("address_foreign", Some(names.operator(operator))),
    };
    match whose {
        None => json::string(out, what.as_bytes()),
        Some(whose) => {
            json::string(out, what.as_bytes());
            out.pop();
            let rest = out.len();
            json::string(out, whose.as_bytes());
            out[rest] = b':';
        }
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => ipv4(out, v4),
        IpAddr::V6(v6) => write_infallibly(out, format_args!("{v6}")),
    }
}

fn ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    let [first, rest @ ..] = address.octets();
    json::number(out, first);
    for octet in rest {
        out.push(b'.');
        json::number(out, octet);
    }
}

fn hexadecimal(out: &mut Vec<u8>, id: u64) {
    let digits: [u8; 16] = std::array::from_fn(|place| HEX[(id >> (60 - 4 * place)) as usize & 15]);
    out.extend_from_slice(&digits);
}

fn version(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_09 => "0.9",
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_2 => "2",
        http::Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

fn comma(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.push(b',');
    }
}

fn write_infallibly(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector grows as needed");
}

#[cfg(test)]
mod tests;
