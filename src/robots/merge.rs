//! Merges directives into a robots.txt. Lines are only added, except for delays: if a crawler's delay is larger than
//! the stated one, the stated number is replaced, because some crawlers read the first of two delays and some the last.
//!
//! Groups do not inherit: a crawler that finds its name reads only that group. So each delay is in every group that it
//! is for. A crawler without a group gets one that repeats the rules that applied to it. A group of several crawlers
//! with different delays is split, and each part repeats the rules.

use super::directives::{CrawlerDelay, RobotsDirectives, ignores_wildcard, is_family, resolve_delays, states_exactly};
use super::parser::{Delay, Record, RecordKind, RobotsText, WILDCARD, number_range, record_runs, stated_delay};

use super::writer::RobotsWriter;

/// Returns `text` with `directives` merged in, or `None` if the result is too long. Merging again changes nothing.
pub fn merged(text: &[u8], wishes: &RobotsDirectives) -> Option<Vec<u8>> {
    let parsed = RobotsText::parse(text);
    let merging = Merger { text, asked: resolve_delays(&parsed, wishes), trap: wishes.honeypot.as_deref(), parsed };
    merging.write(RobotsWriter::of(text))
}

struct Merger<'t> {
    text: &'t [u8],
    parsed: RobotsText<'t>,
    asked: Vec<CrawlerDelay<'t>>,
    trap: Option<&'t str>,
}

/// A group to append: its products, their delay, and the group whose rules it repeats.
struct MissingGroup<'t> {
    products: Vec<&'t [u8]>,
    delay: Option<Delay>,
    rules_of: Option<&'t [u8]>,
}

impl<'t> Merger<'t> {
    fn write(&self, mut page: RobotsWriter<'_>) -> Option<Vec<u8>> {
        let missing = self.missing();
        let mut groups = self.parsed.groups().peekable();
        while let Some(group) = groups.next() {
            self.append_missing(group, groups.peek().is_none() && !missing.is_empty(), &mut page);
        }
        page.copy_rest();
        for (place, group) in missing.iter().enumerate() {
            if place > 0 || !self.text.is_empty() {
                page.write_line(b"");
            }
            self.append(group, &mut page);
        }
        page.finish()
    }

    /// Returns the delay of the crawler that a user-agent record names.
    fn delay_for(&self, agent: &Record<'_>) -> Option<Delay> {
        match agent.what {
            RecordKind::Agent(product) => self.delay_of_product(product),
            _ => None,
        }
    }

    fn delay_of_product(&self, product: &[u8]) -> Option<Delay> {
        self.asked.iter().find(|asked| asked.product.eq_ignore_ascii_case(product)).map(|asked| asked.delay)
    }

    /// Adds the missing lines to a group. `has_open_end` is true if appended groups follow, which must not become part
    /// of it.
    fn append_missing(&self, group: &[Record<'_>], has_open_end: bool, page: &mut RobotsWriter<'_>) {
        let trap = self.trap.filter(|_| !self.has_trap(group)).map(disallow);
        let mut runs = record_runs(group).peekable();
        while let Some(run) = runs.next() {
            let agents = run.iter().take_while(|record| is_agent(record)).count();
            let mut parts = run[..agents].chunk_by(|one, next| self.delay_for(one) == self.delay_for(next)).peekable();
            while let Some(part) = parts.next() {
                let Some(last) = part.last().filter(|_| !page.is_over_limit()) else { return };
                page.copy_until(last.span.end);
                let asked = self.delay_for(last);
                if parts.peek().is_some() {
                    self.split_group(group, run, asked, page);
                    continue;
                }
                let states_none = run.iter().all(|record| stated_delay(record).is_none());
                if let Some(delay) = asked.filter(|_| states_none) {
                    page.write_line(&crawl_delay(delay));
                }
                if runs.peek().is_none() {
                    trap.iter().for_each(|trap| page.write_line(trap));
                    if has_open_end && trap.is_none() && !is_closed(group) {
                        page.write_line(NO_RULE);
                    }
                }
                if let Some(delay) = asked {
                    self.rewrite_delay(delay, run, page);
                }
            }
        }
    }

    /// Replaces the first delay of the run by `delay` and removes the others.
    fn rewrite_delay(&self, delay: Delay, run: &[Record<'_>], page: &mut RobotsWriter<'_>) {
        let mut said = run.iter().filter_map(|record| Some((&record.span, stated_delay(record)?)));
        if let Some((first, _)) = said.next().filter(|(_, smaller)| *smaller != delay) {
            let number = number_range(&self.text[first.clone()]);
            page.copy_until(first.start + number.start);
            page.write(delay.to_string().as_bytes());
            page.skip_to(first.start + number.end);
        }
        for (again, _) in said {
            page.copy_until(again.start);
            page.skip_to(again.end);
        }
    }

    /// Splits user agents from the following ones of the same run that have another delay.
    fn split_group(&self, group: &[Record<'_>], run: &[Record<'_>], asked: Option<Delay>, page: &mut RobotsWriter<'_>) {
        let delays: Vec<Delay> =
            asked.map_or_else(|| run.iter().filter_map(stated_delay).collect(), |delay| vec![delay]);
        delays.iter().for_each(|delay| page.write_line(&crawl_delay(*delay)));
        // For crawlers that read delays, a delay alone ends the group. Other crawlers do not read the lines as a group
        // of their own.
        if is_closed(run) || delays.is_empty() {
            self.repeat_rules(&[group], page);
            page.write_line(b"");
        }
    }

    /// Adds the rules of `groups` and the honeypot if it is missing; if there are no rules, adds [`NO_RULE`].
    fn repeat_rules(&self, groups: &[&[Record<'_>]], page: &mut RobotsWriter<'_>) {
        let trap = self.trap.filter(|_| !groups.iter().any(|group| self.has_trap(group))).map(disallow);
        trap.iter().for_each(|trap| page.write_line(trap));
        for rule in groups.iter().flat_map(|group| self.rules_in(group)) {
            if page.is_over_limit() {
                return;
            }
            page.write_line(rule);
        }
        if trap.is_none() && !groups.iter().any(|group| is_closed(group)) {
            page.write_line(NO_RULE);
        }
    }

    /// Returns the lines that apply to the group, except delays.
    fn rules_in(&self, group: &[Record<'_>]) -> impl Iterator<Item = &'t [u8]> {
        let is_rule = |record: &&Record<'_>| {
            matches!(record.what, RecordKind::Allow | RecordKind::Disallow(_) | RecordKind::Other)
        };
        group.iter().filter(is_rule).map(|record| self.text[record.span.clone()].trim_ascii())
    }

    fn has_trap(&self, group: &[Record<'_>]) -> bool {
        let is_trap = |path: &[u8]| self.trap.is_some_and(|trap| trap.as_bytes() == path);
        group.iter().any(|record| matches!(record.what, RecordKind::Disallow(path) if is_trap(path)))
    }

    /// Returns the groups to append for crawlers without a group of their own. Crawlers with equal lines share one.
    fn missing(&self) -> Vec<MissingGroup<'t>> {
        let has_wildcard = self.parsed.groups_of(WILDCARD).next().is_some();
        let wildcard_delay = self.delay_of_product(WILDCARD);
        let mut missing: Vec<MissingGroup<'t>> = Vec::new();
        if !has_wildcard && (wildcard_delay.is_some() || self.trap.is_some()) {
            missing.push(MissingGroup { products: vec![WILDCARD], delay: wildcard_delay, rules_of: None });
        }
        let is_stated_for_wildcard = |delay| match wildcard_delay {
            Some(asked) => asked == delay,
            None => states_exactly(&self.parsed, WILDCARD, delay),
        };
        for CrawlerDelay { product, delay, group: goes_by } in &self.asked {
            let follows_wildcard = match goes_by {
                Some(name) => *name == WILDCARD,
                None => !ignores_wildcard(product),
            };
            let has_group = goes_by.is_some_and(|name| *product == WILDCARD || is_family(name, product));
            if *product == WILDCARD || has_group || (follows_wildcard && is_stated_for_wildcard(*delay)) {
                continue;
            }
            let says_the_same = |known: &&mut MissingGroup<'_>| {
                known.products != [WILDCARD] && known.delay == Some(*delay) && known.rules_of == *goes_by
            };
            match missing.iter_mut().find(says_the_same) {
                Some(known) => known.products.push(product),
                None => missing.push(MissingGroup { products: vec![product], delay: Some(*delay), rules_of: *goes_by }),
            }
        }
        missing
    }

    fn append(&self, missing: &MissingGroup<'_>, page: &mut RobotsWriter<'_>) {
        let MissingGroup { products, delay, rules_of } = missing;
        products.iter().for_each(|product| page.write_line(&[b"User-agent: ", *product].concat()));
        delay.iter().for_each(|delay| page.write_line(&crawl_delay(*delay)));
        let groups: Vec<_> = rules_of.iter().flat_map(|name| self.parsed.groups_of(name)).collect();
        self.repeat_rules(&groups, page);
    }
}

/// Returns true if a rule ends the group's run of user agents.
fn is_closed(group: &[Record<'_>]) -> bool {
    group.iter().any(|record| matches!(record.what, RecordKind::Allow | RecordKind::Disallow(_)))
}

/// Rule that ends a run of user agents without disallowing anything.
const NO_RULE: &[u8] = b"Disallow:";

fn crawl_delay(delay: Delay) -> Vec<u8> {
    format!("Crawl-delay: {delay}").into_bytes()
}

fn disallow(path: &str) -> Vec<u8> {
    format!("Disallow: {path}").into_bytes()
}

fn is_agent(record: &Record<'_>) -> bool {
    matches!(record.what, RecordKind::Agent(_))
}
