//! Renders the crawl policy as an HTML page.

use super::document::{ClassEntry, Operator, PolicyDocument, QuotaEntry, Terms};
use crate::gateway::message::html::{Escaped, write_page_head};
use std::fmt::{self, Write};

pub(super) fn render(policy: &PolicyDocument<'_>) -> String {
    let mut text = String::new();
    write(policy, &mut text).expect("writing to a String succeeds");
    text
}

fn write(policy: &PolicyDocument<'_>, out: &mut String) -> fmt::Result {
    write_page_head(out, "Crawl policy")?;
    out.write_str("<h1>Crawl policy</h1>\n<p>What crawlers may do on this site now. Also available as JSON.</p>\n")?;
    if let Some(contact) = policy.contact {
        let shown = contact.strip_prefix("mailto:").unwrap_or(contact);
        writeln!(out, "<p>Contact: <a href=\"{}\">{}</a></p>", Escaped(contact), Escaped(shown))?;
    }
    if let Some(Terms { search, agent, training }) = policy.terms {
        let permissions = [("search", search), ("answers to users", agent), ("training of models", training)];
        for (usage, is_allowed) in permissions.into_iter().filter_map(|(usage, permission)| Some((usage, permission?)))
        {
            writeln!(out, "<p>Use for {usage}: {}</p>", if is_allowed { "allowed" } else { "not allowed" })?;
        }
    }
    if let Some(license) = policy.license {
        writeln!(out, "<p>License: <a href=\"{0}\">{0}</a></p>", Escaped(license))?;
    }
    policy.classes.iter().try_for_each(|class| write_class(class, out))?;
    out.write_str("<h2>Verification</h2>\n<ul>\n")?;
    for method in &policy.verification {
        writeln!(out, "<li><b>{}</b>: {}</li>", method.name, method.how)?;
    }
    out.write_str("</ul>\n<p>Other bots are classified by their user agents")?;
    policy
        .undeclared_or_unverified_bots
        .class
        .iter()
        .try_for_each(|class| write!(out, ", in class {}", Escaped(class)))?;
    policy
        .undeclared_or_unverified_bots
        .crawl_delay_s
        .iter()
        .try_for_each(|seconds| write!(out, "; {}", DelayText(*seconds)))?;
    out.write_str(".</p>\n<ul>\n")?;
    policy.operators.iter().try_for_each(|operator| write_operator(operator, out))?;
    out.write_str("</ul>\n")
}

fn write_class(class: &ClassEntry<'_>, out: &mut String) -> fmt::Result {
    writeln!(out, "<h2>Class {}</h2>\n<ul>", Escaped(class.name))?;
    let kinds: Vec<String> = class.kinds.iter().map(|kind| kind.replace('_', " ")).collect();
    let criteria = [
        ("Kinds", kinds.join(", ")),
        ("Operators", class.operators.join(", ")),
        ("User agents", class.user_agents.join(", ")),
        ("Purposes", class.purposes.join(", ")),
    ];
    for (label, values) in criteria.iter().filter(|(_, values)| !values.is_empty()) {
        writeln!(out, "<li>{label}: {}</li>", Escaped(values))?;
    }
    if criteria.iter().all(|(_, values)| values.is_empty()) {
        out.write_str("<li>All other clients</li>\n")?;
    }
    if class.blocked {
        return out.write_str("<li>Blocked, except for robots.txt and this page.</li>\n</ul>\n");
    }
    class.crawl_delay_s.iter().try_for_each(|seconds| writeln!(out, "<li>{}</li>", DelayText(*seconds)))?;
    if let Some(bucket) = &class.bucket {
        let (capacity, fill, interval) = (bucket.capacity, bucket.fill, bucket.interval_s);
        let sharing = match bucket.shared_by {
            "operator" => "Each operator's crawlers together",
            "class" => "All clients of the class together",
            _ => "Each client",
        };
        let requests = if bucket.counts == "costed" { "requests that cost something" } else { "requests" };
        writeln!(out, "<li>{sharing}: {capacity} {requests} at once, then {fill} every {interval}\u{a0}s</li>")?;
    }
    class.quotas.iter().try_for_each(|quota| write_quota(quota, out))?;
    out.write_str("</ul>\n")
}

fn write_quota(quota: &QuotaEntry<'_>, out: &mut String) -> fmt::Result {
    let (left, refused) = (Percent(quota.remaining), Percent(quota.refused_ratio));
    write!(out, "<li>{}: {left} left until {}, ", Escaped(quota.name), TimestampText(&quota.window_ends))?;
    write!(out, "{refused} of requests refused now")?;
    for tier in &quota.tiers {
        write!(out, "; from {} used on, {} refused", Percent(tier.above), Percent(tier.refused_ratio))?;
    }
    if let Some(units) = &quota.units {
        write!(out, " ({} of {} units left)", units.remaining, units.limit)?;
    }
    out.write_str("</li>\n")
}

fn write_operator(operator: &Operator<'_>, out: &mut String) -> fmt::Result {
    write!(out, "<li><b>{}</b>", Escaped(operator.name))?;
    if !operator.crawlers.is_empty() {
        write!(out, " ({})", Escaped(&operator.crawlers.join(", ")))?;
    }
    match operator.verified_by.is_empty() {
        true => out.write_str(": cannot be verified")?,
        false => write!(out, ": by {}", operator.verified_by.join(", "))?,
    }
    operator.class.iter().try_for_each(|class| write!(out, "; class {}", Escaped(class)))?;
    operator.crawl_delay_s.iter().try_for_each(|seconds| write!(out, "; {}", DelayText(*seconds)))?;
    out.write_str("</li>\n")
}

/// Formats a crawl delay in seconds.
struct DelayText(u32);

/// Formats a ratio as a percentage.
struct Percent(f64);

/// Formats an RFC 3339 timestamp.
struct TimestampText<'a>(&'a str);

impl fmt::Display for DelayText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\u{a0}s between two requests", self.0)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\u{a0}%", (self.0 * 100.0).round())
    }
}

impl fmt::Display for TimestampText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.replace('T', " ").replace('Z', " UTC");
        write!(out, "<time datetime=\"{}\">{shown}</time>", self.0)
    }
}
