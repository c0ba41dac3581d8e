//! What is wanted, in one line: `person refused <= 0, search served >= 90 %, unused <= 2 %`.
//!
//! Terms count in their order: a policy that does better in the first is nearer to the goal, whatever it does in those
//! after it.

use super::measure::{Measure, MeasureKind};
use crate::config::did_you_mean;
use std::fmt;

/// What is wanted: at least one term.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The terms, the most important first.
    pub terms: Vec<Term>,
}

/// One thing that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What is measured.
    pub measure: Measure,
    /// On which side of the amount it is to be.
    pub bound: Bound,
    /// How much: percent where shares are measured.
    pub amount: f64,
}

/// On which side of an amount something is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
}

/// What a goal may speak of.
#[derive(Clone, Debug)]
pub struct GoalContext<'a> {
    /// The classes.
    pub classes: Vec<&'a str>,
    /// The quotas, and whether there ever is an end at which something may be left of them.
    pub quotas: Vec<(&'a str, bool)>,
    /// The quota that is meant where none is named.
    pub tuned: &'a str,
}

/// What is wrong with a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoalError {
    /// Where it begins, in characters from 1.
    pub column: usize,
    /// The term.
    pub found: String,
    /// What is wrong with it, and what would do.
    pub wrong: String,
}

impl Goal {
    /// Reads a goal, or says all that is wrong with it.
    pub fn read(text: &str, known: &GoalContext<'_>) -> Result<Self, Vec<GoalError>> {
        let (mut terms, mut wrong, mut column) = (Vec::new(), Vec::new(), 1);
        for part in text.split(',') {
            let found = part.trim();
            let begins = column + part.chars().take_while(|sign| sign.is_whitespace()).count();
            match Term::read(found, known) {
                Ok(term) => terms.push(term),
                Err(why) => wrong.push(GoalError { column: begins, found: found.to_owned(), wrong: why }),
            }
            column += part.chars().count() + 1;
        }
        if wrong.is_empty() { Ok(Self { terms }) } else { Err(wrong) }
    }
}

impl Term {
    fn read(text: &str, known: &GoalContext<'_>) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!("there is nothing; write a term such as {EXAMPLE}"));
        }
        let is_sign = |sign: char| matches!(sign, '<' | '>' | '=' | '!' | '≤' | '≥');
        let (what, rest) = text
            .split_once(is_sign)
            .map(|(what, _)| text.split_at(what.len()))
            .ok_or_else(|| format!("neither <= nor >= is in it; write a term such as {EXAMPLE}"))?;
        let amount = rest.trim_start_matches(is_sign);
        let bound = match rest.strip_suffix(amount) {
            Some("<=") => Bound::AtMost,
            Some(">=") => Bound::AtLeast,
            other => return Err(format!("{:?} is neither <= nor >=; write one of them", other.unwrap_or_default())),
        };
        let Amount { number, unit } = Amount::read(amount.trim())?;
        let measure = measure(what, unit == "%", known)?;
        let counted = measure.what.unit();
        match unit {
            "%" if number > 100.0 => Err(format!("{number} % is more than all there is; write 0 % to 100 %")),
            "" if number > 0.0 && number <= 100.0 => Err(format!(
                "{number} could be a share or a count; did you mean {number} %? write {number} % or {number} {counted}"
            )),
            "%" | "" => Ok(Self { measure, bound, amount: number }),
            _ if unit == counted => Ok(Self { measure, bound, amount: number }),
            _ => Err(format!("{unit:?} is no unit of it; write a number such as 0, 90 % or 500 {counted}")),
        }
    }

    /// By how much a measured value misses it; nothing where it is met, or there is nothing to measure.
    pub fn shortfall(&self, value: Option<f64>) -> f64 {
        let value = value.unwrap_or(self.amount);
        match self.bound {
            Bound::AtMost => (value - self.amount).max(0.0),
            Bound::AtLeast => (self.amount - value).max(0.0),
        }
    }
}

/// What stands behind a sign.
struct Amount<'a> {
    number: f64,
    unit: &'a str,
}

impl<'a> Amount<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let is_digit = |sign: char| sign.is_ascii_digit() || matches!(sign, '.' | '-');
        let (digits, unit) = text.split_at(text.find(|sign| !is_digit(sign)).unwrap_or(text.len()));
        if unit.contains(['<', '>']) {
            return Err(format!("one term ends after {digits:?} and another begins; write a comma between them"));
        }
        let read = digits.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        let number = read.ok_or_else(|| format!("{text:?} is no amount; write a number such as 0, or 90 %"))?;
        Ok(Self { number, unit: unit.trim() })
    }
}

fn measure(text: &str, is_share: bool, known: &GoalContext<'_>) -> Result<Measure, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, word) = match words[..] {
        [word] => (None, word),
        [name, word] => (Some(name), word),
        _ => return Err(format!("{:?} is not a name and a measure; write a term such as {EXAMPLE}", text.trim())),
    };
    let Some(what) = MeasureKind::ALL.into_iter().find(|what| what.name() == word) else {
        let measures = MeasureKind::ALL.map(MeasureKind::name);
        let hint = did_you_mean(word, measures);
        return Err(format!("there is no measure {word:?}{hint}; the measures are {}", measures.join(", ")));
    };
    if what == MeasureKind::Evenness && !is_share {
        return Err("evenness is a share; write a percent sign, such as evenness >= 80 %".to_owned());
    }
    let name = match what.is_per_class() {
        true => class(name, what, known)?,
        false => quota(name.unwrap_or(known.tuned), what, known)?,
    };
    Ok(Measure { what, name: name.to_owned(), is_share })
}

fn class<'a>(name: Option<&str>, what: MeasureKind, known: &GoalContext<'a>) -> Result<&'a str, String> {
    let classes = known.classes.join(", ");
    let Some(name) = name else {
        return Err(format!("whose {:?}? write a class before it; the classes are {classes}", what.name()));
    };
    known.classes.iter().find(|known| **known == name).copied().ok_or_else(|| {
        let hint = did_you_mean(name, known.classes.iter().copied());
        format!("there is no class {name:?}{hint}; the classes are {classes}")
    })
}

fn quota<'a>(name: &str, what: MeasureKind, known: &GoalContext<'a>) -> Result<&'a str, String> {
    let names = || known.quotas.iter().map(|(quota, _)| *quota);
    match known.quotas.iter().find(|(quota, _)| *quota == name) {
        Some((quota, true)) => Ok(quota),
        Some((quota, false)) => Err(format!(
            "the window of {quota} slides and never ends, so nothing is {} at its end; leave the term out",
            what.name()
        )),
        None => {
            let (hint, quotas) = (did_you_mean(name, names()), names().collect::<Vec<_>>().join(", "));
            Err(format!("there is no quota {name:?}{hint}; the quotas are {quotas}"))
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<String> = self.terms.iter().map(Term::to_string).collect();
        out.write_str(&terms.join(", "))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, bound, amount } = self;
        write!(out, "{measure} {} {amount}", bound.sign())?;
        match measure.is_share {
            true => out.write_str(" %"),
            false if *amount == 0.0 => Ok(()),
            false => write!(out, " {}", measure.what.unit()),
        }
    }
}

impl fmt::Display for GoalError {
    /// `--goal:COLUMN: "TERM": what is wrong; what would do`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "--goal:{}: {:?}: {}", self.column, self.found, self.wrong)
    }
}

impl Bound {
    /// As it is written.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }
}

const EXAMPLE: &str = "search served >= 90 %";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known() -> GoalContext<'static> {
        GoalContext {
            classes: vec!["search", "bot", "person"],
            quotas: vec![("api", true), ("feed", true), ("hourly", false)],
            tuned: "api",
        }
    }

    fn terms() -> impl Strategy<Value = Term> {
        let of_a_class = (prop_oneof![Just("search"), Just("bot"), Just("person")], 0..3_usize);
        let of_a_quota = (prop_oneof![Just("api"), Just("feed")], 3..5_usize);
        let measured = prop_oneof![of_a_class, of_a_quota];
        (measured, any::<bool>(), any::<bool>(), 0..=100_000_u32).prop_map(
            |((name, what), share, at_most, thousandths)| {
                let what = MeasureKind::ALL[what];
                let is_share = share || what == MeasureKind::Evenness;
                Term {
                    measure: Measure { what, name: name.to_owned(), is_share },
                    bound: if at_most { Bound::AtMost } else { Bound::AtLeast },
                    amount: f64::from(thousandths) / 1000.0,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_goal_that_is_printed_reads_back_as_it_was(terms in proptest::collection::vec(terms(), 1..6)) {
            let goal = Goal { terms };
            prop_assert_eq!(Goal::read(&goal.to_string(), &known()), Ok(goal));
        }

        #[test]
        fn whatever_is_written_is_a_goal_or_told_what_is_wrong(text in "[a-z <>=%,.0-9≤]{0,60}|.{0,40}") {
            if let Err(wrong) = Goal::read(&text, &known()) {
                prop_assert!(!wrong.is_empty());
                prop_assert!(wrong.iter().all(|term| (1..=text.chars().count() + 1).contains(&term.column)), "{:?}", wrong);
            }
        }
    }

    #[test]
    fn spaces_do_not_matter_and_the_tuned_quota_needs_no_name() {
        let goal = Goal::read("  person   refused<=0,search served>= 90%,unused <= 2.5 %", &known()).expect("a goal");
        assert_eq!(goal.to_string(), "person refused <= 0, search served >= 90 %, api unused <= 2.5 %");
        let goal = Goal::read("person refused <= 20 requests, search served >= 500, used>=40units", &known());
        let counts = "person refused <= 20 requests, search served >= 500 requests, api used >= 40 units";
        assert_eq!(goal.expect("a goal").to_string(), counts);
    }

    #[test]
    fn every_mistake_says_where_it_is_what_was_found_and_what_would_do() {
        let told = |text: &str| {
            let wrong = Goal::read(text, &known()).expect_err("no goal");
            wrong.iter().map(GoalError::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            told("serch served >= 90 %, person refuse <= 0, unused < 2 %"),
            [
                "--goal:1: \"serch served >= 90 %\": there is no class \"serch\" (did you mean \"search\"?); the classes are \
                 search, bot, person",
                "--goal:23: \"person refuse <= 0\": there is no measure \"refuse\" (did you mean \"refused\"?); the measures \
                 are refused, served, evenness, unused, used",
                "--goal:43: \"unused < 2 %\": \"<\" is neither <= nor >=; write one of them",
            ]
        );
        for (text, hint) in [
            ("", "there is nothing"),
            ("unused", "neither <= nor >= is in it"),
            ("served >= 90 %", "whose \"served\"? write a class before it"),
            ("search evenness >= 80", "evenness is a share"),
            ("search served >= 90", "did you mean 90 %? write 90 % or 90 requests"),
            ("unused <= 2", "write 2 % or 2 units"),
            ("unused <= 2 requests", "\"requests\" is no unit of it"),
            ("person refused <= 0; search served >= 60 %", "another begins; write a comma between them"),
            ("search served >= 101 %", "more than all there is"),
            ("search served >= many", "\"many\" is no amount"),
            ("search served >= -1", "\"-1\" is no amount"),
            ("all search served >= 1", "is not a name and a measure"),
            ("apis unused <= 1 %", "there is no quota \"apis\" (did you mean \"api\"?)"),
            ("hourly unused <= 1 %", "slides and never ends"),
        ] {
            let told = told(text).join("\n");
            assert!(told.contains(hint), "{text}: {told}");
        }
    }
}
