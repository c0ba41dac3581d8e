//! Merges directives into a robots.txt. Lines are only added, except for delays: if a crawler's delay is larger than
//! the stated one, the stated number is replaced, because some crawlers read the first of two delays and some the last.
//!
//! Groups do not inherit: a crawler that finds its name reads only that group. So each delay is in every group that it
//! is for. A crawler without a group gets one that repeats the rules that applied to it. A group of several crawlers
//! with different delays is split, and each part repeats the rules.

use super::directives::{CrawlerDelay, RobotsDirectives, ignores_wildcard, is_family, resolve_delays, states_exactly};
use super::parser::{
    BYTE_ORDER_MARK, Delay, RecordKind, RobotsRecord, RobotsText, WILDCARD, lines, number_range, record_runs,
    stated_delay,
};

use super::terms::{LICENSE, directive};
use super::writer::RobotsWriter;

/// Returns `text` with `directives` merged in, or `None` if the result is too long. Merging again changes nothing.
pub fn merge_directives(text: &[u8], directives: &RobotsDirectives) -> Option<Vec<u8>> {
    let parsed = RobotsText::parse(text);
    let merger = Merger {
        text,
        crawler_delays: resolve_delays(&parsed, directives),
        honeypot: directives.honeypot.as_deref(),
        usage: &directives.usage,
        license: directives.license.as_deref().filter(|_| !names_license(text)),
        parsed,
    };
    merger.write(RobotsWriter::new(text))
}

struct Merger<'t> {
    text: &'t [u8],
    parsed: RobotsText<'t>,
    crawler_delays: Vec<CrawlerDelay<'t>>,
    honeypot: Option<&'t str>,
    usage: &'t [String],
    license: Option<&'t str>,
}

/// A group to append: its products, their delay, and the group whose rules it repeats.
struct MissingGroup<'t> {
    products: Vec<&'t [u8]>,
    delay: Option<Delay>,
    source_group: Option<&'t [u8]>,
}

impl<'t> Merger<'t> {
    fn write(&self, mut writer: RobotsWriter<'_>) -> Option<Vec<u8>> {
        let missing = self.missing_groups();
        if let Some(license) = self.license {
            if self.text.starts_with(BYTE_ORDER_MARK) {
                writer.copy_until(BYTE_ORDER_MARK.len());
            }
            writer.write_line(format!("{LICENSE}: {license}").as_bytes());
            writer.write_line(b"");
        }
        let mut groups = self.parsed.groups().peekable();
        while let Some(group) = groups.next() {
            self.append_missing(group, groups.peek().is_none() && !missing.is_empty(), &mut writer);
        }
        writer.copy_rest();
        for (index, group) in missing.iter().enumerate() {
            if index > 0 || !self.text.is_empty() {
                writer.write_line(b"");
            }
            self.append(group, &mut writer);
        }
        writer.finish()
    }

    /// Returns the delay of the crawler that a user-agent record names.
    fn delay_for(&self, agent: &RobotsRecord<'_>) -> Option<Delay> {
        match agent.kind {
            RecordKind::UserAgent(product) => self.delay_of_product(product),
            _ => None,
        }
    }

    fn delay_of_product(&self, product: &[u8]) -> Option<Delay> {
        self.crawler_delays
            .iter()
            .find(|crawler| crawler.product.eq_ignore_ascii_case(product))
            .map(|crawler| crawler.delay)
    }

    /// Adds the missing lines to a group. `has_open_end` is true if appended groups follow, which must not become part
    /// of it.
    fn append_missing(&self, group: &[RobotsRecord<'_>], has_open_end: bool, writer: &mut RobotsWriter<'_>) {
        let honeypot = self.honeypot.filter(|_| !self.has_honeypot(group)).map(disallow_line);
        let mut runs = record_runs(group).peekable();
        // Number of records above the last split: what follows is a group of its own.
        let mut split_at = 0;
        while let Some(run) = runs.next() {
            let agents = run.iter().take_while(|record| is_agent(record)).count();
            let mut parts = run[..agents].chunk_by(|one, next| self.delay_for(one) == self.delay_for(next)).peekable();
            while let Some(part) = parts.next() {
                let Some(last) = part.last().filter(|_| !writer.is_over_limit()) else { return };
                writer.copy_until(last.span.end);
                let requested = self.delay_for(last);
                if parts.peek().is_some() {
                    self.split_group(group, run, requested, writer);
                    split_at = group.iter().take_while(|record| record.span.start <= last.span.start).count();
                    continue;
                }
                let has_no_delay = run.iter().all(|record| stated_delay(record).is_none());
                if let Some(delay) = requested.filter(|_| has_no_delay) {
                    writer.write_line(&crawl_delay_line(delay));
                }
                if runs.peek().is_none() {
                    honeypot.iter().for_each(|honeypot| writer.write_line(honeypot));
                    let (above, rest) = group.split_at(split_at);
                    self.usage_of_rest(above, rest).into_iter().for_each(|line| writer.write_line(line));
                    if has_open_end && honeypot.is_none() && !has_rules(group) {
                        writer.write_line(NO_RULE);
                    }
                }
                if let Some(delay) = requested {
                    self.rewrite_delay(delay, run, writer);
                }
            }
        }
    }

    /// Replaces the first delay of the run by `delay` and removes the others.
    fn rewrite_delay(&self, delay: Delay, run: &[RobotsRecord<'_>], writer: &mut RobotsWriter<'_>) {
        let mut stated = run.iter().filter_map(|record| Some((&record.span, stated_delay(record)?)));
        if let Some((first, _)) = stated.next().filter(|(_, current)| *current != delay) {
            let number = number_range(&self.text[first.clone()]);
            writer.copy_until(first.start + number.start);
            writer.write(delay.to_string().as_bytes());
            writer.skip_to(first.start + number.end);
        }
        for (duplicate, _) in stated {
            writer.copy_until(duplicate.start);
            writer.skip_to(duplicate.end);
        }
    }

    /// Splits user agents from the following ones of the same run that have another delay.
    fn split_group(
        &self,
        group: &[RobotsRecord<'_>],
        run: &[RobotsRecord<'_>],
        requested: Option<Delay>,
        writer: &mut RobotsWriter<'_>,
    ) {
        let delays: Vec<Delay> =
            requested.map_or_else(|| run.iter().filter_map(stated_delay).collect(), |delay| vec![delay]);
        delays.iter().for_each(|delay| writer.write_line(&crawl_delay_line(*delay)));
        // For crawlers that read delays, a delay alone ends the group. Other crawlers do not read the lines as a group
        // of their own.
        if has_rules(run) || delays.is_empty() {
            self.repeat_rules(&[group], writer);
            writer.write_line(b"");
        }
    }

    /// Adds the rules of `groups` and the honeypot if it is missing; if there are no rules, adds [`NO_RULE`].
    fn repeat_rules(&self, groups: &[&[RobotsRecord<'_>]], writer: &mut RobotsWriter<'_>) {
        let honeypot =
            self.honeypot.filter(|_| !groups.iter().any(|group| self.has_honeypot(group))).map(disallow_line);
        honeypot.iter().for_each(|honeypot| writer.write_line(honeypot));
        self.missing_usage(groups).for_each(|line| writer.write_line(line));
        for rule in groups.iter().flat_map(|group| self.rules_in(group)) {
            if writer.is_over_limit() {
                return;
            }
            writer.write_line(rule);
        }
        if honeypot.is_none() && !groups.iter().any(|group| has_rules(group)) {
            writer.write_line(NO_RULE);
        }
    }

    /// Returns the lines about the use of pages of which the rest of a split group states nothing: what the group states above, else
    /// those of the operator of the site.
    fn usage_of_rest(&self, above: &[RobotsRecord<'_>], rest: &[RobotsRecord<'_>]) -> Vec<&'t [u8]> {
        let stated = above.iter().filter(|record| record.kind == RecordKind::Other);
        let stated: Vec<&'t [u8]> = stated.map(|record| self.text[record.span.clone()].trim_ascii()).collect();
        let line_above = |line| {
            let is_same = |other: &&&'t [u8]| directive(other).eq_ignore_ascii_case(directive(line));
            stated.iter().rfind(is_same).copied().unwrap_or(line)
        };
        self.missing_usage(&[rest]).map(line_above).collect()
    }

    /// Returns the lines about the use of pages of which `groups` state nothing.
    fn missing_usage(&self, groups: &[&[RobotsRecord<'_>]]) -> impl Iterator<Item = &'t [u8]> {
        let stated = groups.iter().flat_map(|group| group.iter()).filter(|record| record.kind == RecordKind::Other);
        let stated: Vec<&[u8]> = stated.map(|record| directive(&self.text[record.span.clone()])).collect();
        let is_missing = move |line: &&[u8]| !stated.iter().any(|name| name.eq_ignore_ascii_case(directive(line)));
        self.usage.iter().map(String::as_bytes).filter(is_missing)
    }

    /// Returns the lines that apply to the group, except delays.
    fn rules_in(&self, group: &[RobotsRecord<'_>]) -> impl Iterator<Item = &'t [u8]> {
        let is_rule = |record: &&RobotsRecord<'_>| {
            matches!(record.kind, RecordKind::Allow(_) | RecordKind::Disallow(_) | RecordKind::Other)
        };
        group.iter().filter(is_rule).map(|record| self.text[record.span.clone()].trim_ascii())
    }

    fn has_honeypot(&self, group: &[RobotsRecord<'_>]) -> bool {
        let is_honeypot = |path: &[u8]| self.honeypot.is_some_and(|honeypot| honeypot.as_bytes() == path);
        group.iter().any(|record| matches!(record.kind, RecordKind::Disallow(path) if is_honeypot(path)))
    }

    /// Returns the groups to append for crawlers without a group of their own. Crawlers with equal lines share one.
    fn missing_groups(&self) -> Vec<MissingGroup<'t>> {
        let has_wildcard = self.parsed.groups_of(WILDCARD).next().is_some();
        let wildcard_delay = self.delay_of_product(WILDCARD);
        let mut missing: Vec<MissingGroup<'t>> = Vec::new();
        if !has_wildcard && (wildcard_delay.is_some() || self.honeypot.is_some() || !self.usage.is_empty()) {
            missing.push(MissingGroup { products: vec![WILDCARD], delay: wildcard_delay, source_group: None });
        }
        let is_stated_for_wildcard = |delay| match wildcard_delay {
            Some(requested) => requested == delay,
            None => states_exactly(&self.parsed, WILDCARD, delay),
        };
        for CrawlerDelay { product, delay, group } in &self.crawler_delays {
            let follows_wildcard = match group {
                Some(name) => *name == WILDCARD,
                None => !ignores_wildcard(product),
            };
            let has_group = group.is_some_and(|name| *product == WILDCARD || is_family(name, product));
            if *product == WILDCARD || has_group || (follows_wildcard && is_stated_for_wildcard(*delay)) {
                continue;
            }
            let has_same_rules = |existing: &&mut MissingGroup<'_>| {
                existing.products != [WILDCARD] && existing.delay == Some(*delay) && existing.source_group == *group
            };
            match missing.iter_mut().find(has_same_rules) {
                Some(existing) => existing.products.push(product),
                None => {
                    missing.push(MissingGroup { products: vec![product], delay: Some(*delay), source_group: *group });
                }
            }
        }
        missing
    }

    fn append(&self, missing: &MissingGroup<'_>, writer: &mut RobotsWriter<'_>) {
        let MissingGroup { products, delay, source_group } = missing;
        products.iter().for_each(|product| writer.write_line(&[b"User-agent: ", *product].concat()));
        delay.iter().for_each(|delay| writer.write_line(&crawl_delay_line(*delay)));
        let groups: Vec<_> = source_group.iter().flat_map(|name| self.parsed.groups_of(name)).collect();
        self.repeat_rules(&groups, writer);
    }
}

/// Returns true if a line of `text` names a license.
fn names_license(text: &[u8]) -> bool {
    lines(text).any(|line| directive(&text[line]).eq_ignore_ascii_case(LICENSE.as_bytes()))
}

/// Returns true if a rule ends the group's run of user agents.
fn has_rules(group: &[RobotsRecord<'_>]) -> bool {
    group.iter().any(|record| matches!(record.kind, RecordKind::Allow(_) | RecordKind::Disallow(_)))
}

/// Rule that ends a run of user agents without disallowing anything.
const NO_RULE: &[u8] = b"Disallow:";

fn crawl_delay_line(delay: Delay) -> Vec<u8> {
    format!("Crawl-delay: {delay}").into_bytes()
}

fn disallow_line(path: &str) -> Vec<u8> {
    format!("Disallow: {path}").into_bytes()
}

fn is_agent(record: &RobotsRecord<'_>) -> bool {
    matches!(record.kind, RecordKind::UserAgent(_))
}
