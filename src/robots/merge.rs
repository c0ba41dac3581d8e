//! Writes what the gate asks of crawlers into a robots.txt. Lines are only added, but for delays: where a crawler is asked
//! for more than the text states, the stated number gives way, because some read the first of two delays and some the last.
//!
//! Groups do not inherit: a crawler that finds its name reads that group and no other. So a delay stands in every group
//! that it is for; a crawler without a group gets one that repeats the rules it went by; and a group of several crawlers
//! who are asked different delays is taken apart, each part with the rules again.

use super::directives::{CrawlerDelay, RobotsDirectives, ignores_wildcard, is_family, resolve_delays, states_exactly};
use super::parser::{Delay, Record, RecordKind, RobotsText, WILDCARD, number_range, record_runs, stated_delay};
use super::writer::RobotsWriter;

/// Returns `text` with all `wishes` written in; `None` where that would be too long. Doing it again changes nothing.
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

/// A group that is missing: whom it is for, what they are asked, and whose rules held for them.
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

    /// What the crawler that a record names is asked.
    fn delay_for(&self, agent: &Record<'_>) -> Option<Delay> {
        match agent.what {
            RecordKind::Agent(product) => self.delay_of_product(product),
            _ => None,
        }
    }

    fn delay_of_product(&self, product: &[u8]) -> Option<Delay> {
        self.asked.iter().find(|asked| asked.product.eq_ignore_ascii_case(product)).map(|asked| asked.delay)
    }

    /// Adds to a group what it lacks. Where others follow that must not be taken for part of it, it has an open end.
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

    /// Puts `delay` in the place of the first that the run states, and leaves the others out.
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

    /// Parts user agents from those that follow them in the same run and are asked something else.
    fn split_group(&self, group: &[Record<'_>], run: &[Record<'_>], asked: Option<Delay>, page: &mut RobotsWriter<'_>) {
        let delays: Vec<Delay> =
            asked.map_or_else(|| run.iter().filter_map(stated_delay).collect(), |delay| vec![delay]);
        delays.iter().for_each(|delay| page.write_line(&crawl_delay(*delay)));
        // A delay alone parts them for those who read delays. Nobody else reads this as a group of its own.
        if is_closed(run) || delays.is_empty() {
            self.repeat_rules(&[group], page);
            page.write_line(b"");
        }
    }

    /// Adds the rules of `groups`, and the trap where they lack it; or what says that there are none.
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

    /// What holds for the group besides delays, line by line.
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

    /// The groups that crawlers need which have none of their own, those that would say the same in one.
    fn missing(&self) -> Vec<MissingGroup<'t>> {
        let has_everybody = self.parsed.groups_of(WILDCARD).next().is_some();
        let everybody = self.delay_of_product(WILDCARD);
        let mut missing: Vec<MissingGroup<'t>> = Vec::new();
        if !has_everybody && (everybody.is_some() || self.trap.is_some()) {
            missing.push(MissingGroup { products: vec![WILDCARD], delay: everybody, rules_of: None });
        }
        let is_told_everybody = |delay| match everybody {
            Some(asked) => asked == delay,
            None => states_exactly(&self.parsed, WILDCARD, delay),
        };
        for CrawlerDelay { product, delay, group: goes_by } in &self.asked {
            let heeds_everybody = match goes_by {
                Some(name) => *name == WILDCARD,
                None => !ignores_wildcard(product),
            };
            let has_group = goes_by.is_some_and(|name| *product == WILDCARD || is_family(name, product));
            if *product == WILDCARD || has_group || (heeds_everybody && is_told_everybody(*delay)) {
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

/// True when a rule ends the group's run of user agents.
fn is_closed(group: &[Record<'_>]) -> bool {
    group.iter().any(|record| matches!(record.what, RecordKind::Allow | RecordKind::Disallow(_)))
}

/// Ends a run of user agents without forbidding anything.
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
