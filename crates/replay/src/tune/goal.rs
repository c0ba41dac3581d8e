//! Goals in one line: `person refused <= 0, search admitted >= 90 %, unused <= 2 %`.
//!
//! Terms are compared in their order: a policy that is better in an earlier term is nearer to the goal, regardless of
//! later terms.

use super::measure::{Measure, MeasureKind};
use std::fmt;
use tidegate_config::did_you_mean;

/// Goal of a search: at least one term.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Terms, most important first.
    pub terms: Vec<Term>,
}

/// Term of a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Measured quantity.
    pub measure: Measure,
    /// Direction of the bound.
    pub bound: Bound,
    /// Bound of the quantity; in percent for shares.
    pub amount: f64,
}

/// Direction of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
}

/// Names that a goal may refer to.
#[derive(Clone, Debug)]
pub struct GoalContext<'a> {
    /// Names of the classes.
    pub classes: Vec<&'a str>,
    /// Names of the quotas, with the reason why one cannot be measured.
    pub quotas: Vec<(&'a str, Option<Unmeasured>)>,
    /// Quota of terms without a name.
    pub default_quota: &'a str,
}

/// Reason why the usage of a quota at the end of a window cannot be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasured {
    /// A sliding window has no end.
    Sliding,
    /// The quota has a budget for each key (`per`).
    Budgets,
}

/// Error in a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoalError {
    /// Start of the term, in characters from 1.
    pub column: usize,
    /// Text of the term.
    pub found: String,
    /// Message: the error, and a hint.
    pub message: String,
}

impl Goal {
    /// Parses a goal, or returns all errors in it.
    pub fn read(text: &str, context: &GoalContext<'_>) -> Result<Self, Vec<GoalError>> {
        let (mut terms, mut errors, mut column) = (Vec::new(), Vec::new(), 1);
        for part in text.split(',') {
            let found = part.trim();
            let start = column + part.chars().take_while(|c| c.is_whitespace()).count();
            match Term::read(found, context) {
                Ok(term) => terms.push(term),
                Err(message) => errors.push(GoalError { column: start, found: found.to_owned(), message }),
            }
            column += part.chars().count() + 1;
        }
        if errors.is_empty() { Ok(Self { terms }) } else { Err(errors) }
    }
}

impl Term {
    fn read(text: &str, context: &GoalContext<'_>) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!("empty term; write a term such as {EXAMPLE}"));
        }
        let is_comparison = |c: char| matches!(c, '<' | '>' | '=' | '!' | '≤' | '≥');
        let (measure_text, rest) = text
            .split_once(is_comparison)
            .map(|(measure_text, _)| text.split_at(measure_text.len()))
            .ok_or_else(|| format!("no <= or >= found; write a term such as {EXAMPLE}"))?;
        let amount = rest.trim_start_matches(is_comparison);
        let bound = match rest.strip_suffix(amount) {
            Some("<=") => Bound::AtMost,
            Some(">=") => Bound::AtLeast,
            other => return Err(format!("{:?} is not a comparison; write <= or >=", other.unwrap_or_default())),
        };
        let Amount { number, unit } = Amount::read(amount.trim())?;
        let measure = measure(measure_text, unit == "%", context)?;
        let measure_unit = measure.kind.unit();
        match unit {
            "%" if number > 100.0 => Err(format!("{number} % exceeds 100 %; write 0 % to 100 %")),
            "" if number > 0.0 && number <= 100.0 => {
                Err(format!("{number} may be a share or a count; write {number} % or {number} {measure_unit}"))
            }
            "%" | "" => Ok(Self { measure, bound, amount: number }),
            _ if unit == measure_unit => Ok(Self { measure, bound, amount: number }),
            _ => Err(format!("invalid unit {unit:?}; write a number such as 0, 90 % or 500 {measure_unit}")),
        }
    }

    /// Returns by how much a measured value misses the term; 0 if it is met or there is no value.
    pub fn shortfall(&self, value: Option<f64>) -> f64 {
        let value = value.unwrap_or(self.amount);
        match self.bound {
            Bound::AtMost => (value - self.amount).max(0.0),
            Bound::AtLeast => (self.amount - value).max(0.0),
        }
    }
}

/// Amount of a term, with its unit.
struct Amount<'a> {
    number: f64,
    unit: &'a str,
}

impl<'a> Amount<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let is_digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
        let (digits, unit) = text.split_at(text.find(|c| !is_digit(c)).unwrap_or(text.len()));
        if unit.contains(['<', '>']) {
            return Err(format!("two terms without a comma; write one after {digits:?}"));
        }
        let parsed = digits.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        let number = parsed.ok_or_else(|| format!("invalid amount {text:?}; write a number such as 0, or 90 %"))?;
        Ok(Self { number, unit: unit.trim() })
    }
}

fn measure(text: &str, is_share: bool, context: &GoalContext<'_>) -> Result<Measure, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, word) = match words[..] {
        [word] => (None, word),
        [name, word] => (Some(name), word),
        _ => return Err(format!("{:?} is not a name and a measure; write a term such as {EXAMPLE}", text.trim())),
    };
    let Some(kind) = MeasureKind::ALL.into_iter().find(|kind| kind.name() == word) else {
        let measures = MeasureKind::ALL.map(MeasureKind::name);
        let suggestion = did_you_mean(word, measures);
        return Err(format!("unknown measure {word:?}{suggestion}; the measures are {}", measures.join(", ")));
    };
    if kind == MeasureKind::Evenness && !is_share {
        return Err("evenness is a share; write a percent sign, such as evenness >= 80 %".to_owned());
    }
    let name = match kind.is_per_class() {
        true => class(name, kind, context)?,
        false => quota(name.unwrap_or(context.default_quota), kind, context)?,
    };
    Ok(Measure { kind, name: name.to_owned(), is_share })
}

fn class<'a>(name: Option<&str>, kind: MeasureKind, context: &GoalContext<'a>) -> Result<&'a str, String> {
    let classes = context.classes.join(", ");
    let Some(name) = name else {
        return Err(format!("no class before {:?}; the classes are {classes}", kind.name()));
    };
    context.classes.iter().find(|class| **class == name).copied().ok_or_else(|| {
        let suggestion = did_you_mean(name, context.classes.iter().copied());
        format!("unknown class {name:?}{suggestion}; the classes are {classes}")
    })
}

fn quota<'a>(name: &str, kind: MeasureKind, context: &GoalContext<'a>) -> Result<&'a str, String> {
    let names = || context.quotas.iter().map(|(quota, _)| *quota);
    match context.quotas.iter().find(|(quota, _)| *quota == name) {
        Some((quota, None)) => Ok(quota),
        Some((quota, Some(Unmeasured::Budgets))) => Err(format!(
            "{quota} has a budget for each key (`per`), and {} is measured of all requests together; name a quota without \
             `per`, or remove the term",
            kind.name()
        )),
        Some((quota, Some(Unmeasured::Sliding))) => Err(format!(
            "the sliding window of {quota} has no end, so {} cannot be measured; remove the term",
            kind.name()
        )),
        None => {
            let (suggestion, quotas) = (did_you_mean(name, names()), names().collect::<Vec<_>>().join(", "));
            Err(format!("unknown quota {name:?}{suggestion}; the quotas are {quotas}"))
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
            false => write!(out, " {}", measure.kind.unit()),
        }
    }
}

impl fmt::Display for GoalError {
    /// Formats as `--goal:COLUMN: "TERM": what is wrong; hint`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "--goal:{}: {:?}: {}", self.column, self.found, self.message)
    }
}

impl Bound {
    /// Returns the sign as written in a goal.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }
}

const EXAMPLE: &str = "search admitted >= 90 %";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn goal_context() -> GoalContext<'static> {
        GoalContext {
            classes: vec!["search", "bot", "person"],
            quotas: vec![
                ("api", None),
                ("feed", None),
                ("hourly", Some(Unmeasured::Sliding)),
                ("customer", Some(Unmeasured::Budgets)),
            ],
            default_quota: "api",
        }
    }

    fn any_term() -> impl Strategy<Value = Term> {
        let class_measure = (prop_oneof![Just("search"), Just("bot"), Just("person")], 0..3_usize);
        let quota_measure = (prop_oneof![Just("api"), Just("feed")], 3..5_usize);
        let measured = prop_oneof![class_measure, quota_measure];
        (measured, any::<bool>(), any::<bool>(), 0..=100_000_u32).prop_map(
            |((name, kind), share, at_most, thousandths)| {
                let kind = MeasureKind::ALL[kind];
                let is_share = share || kind == MeasureKind::Evenness;
                Term {
                    measure: Measure { kind, name: name.to_owned(), is_share },
                    bound: if at_most { Bound::AtMost } else { Bound::AtLeast },
                    amount: f64::from(thousandths) / 1000.0,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn goal_display_round_trips(terms in proptest::collection::vec(any_term(), 1..6)) {
            let goal = Goal { terms };
            prop_assert_eq!(Goal::read(&goal.to_string(), &goal_context()), Ok(goal));
        }

        #[test]
        fn arbitrary_text_is_a_goal_or_an_error(text in "[a-z <>=%,.0-9≤]{0,60}|.{0,40}") {
            if let Err(errors) = Goal::read(&text, &goal_context()) {
                prop_assert!(!errors.is_empty());
                prop_assert!(errors.iter().all(|term| (1..=text.chars().count() + 1).contains(&term.column)), "{:?}", errors);
            }
        }
    }

    #[test]
    fn spaces_and_the_tuned_quota_name_are_optional() {
        let goal =
            Goal::read("  person   refused<=0,search admitted>= 90%,unused <= 2.5 %", &goal_context()).expect("a goal");
        assert_eq!(goal.to_string(), "person refused <= 0, search admitted >= 90 %, api unused <= 2.5 %");
        let goal = Goal::read("person refused <= 20 requests, search admitted >= 500, used>=40units", &goal_context());
        let counts = "person refused <= 20 requests, search admitted >= 500 requests, api used >= 40 units";
        assert_eq!(goal.expect("a goal").to_string(), counts);
    }

    #[test]
    fn every_goal_error_has_location_and_hint() {
        let errors = |text: &str| {
            let errors = Goal::read(text, &goal_context()).expect_err("no goal");
            errors.iter().map(GoalError::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            errors("serch admitted >= 90 %, person refuse <= 0, unused < 2 %"),
            [
                "--goal:1: \"serch admitted >= 90 %\": unknown class \"serch\" (did you mean \"search\"?); the classes \
                 are search, bot, person",
                "--goal:25: \"person refuse <= 0\": unknown measure \"refuse\" (did you mean \"refused\"?); the \
                 measures are refused, admitted, evenness, unused, used",
                "--goal:45: \"unused < 2 %\": \"<\" is not a comparison; write <= or >=",
            ]
        );
        for (text, hint) in [
            ("", "empty term"),
            ("unused", "no <= or >= found"),
            ("admitted >= 90 %", "no class before \"admitted\""),
            ("search evenness >= 80", "evenness is a share"),
            ("search admitted >= 90", "write 90 % or 90 requests"),
            ("unused <= 2", "write 2 % or 2 units"),
            ("unused <= 2 requests", "invalid unit \"requests\""),
            ("person refused <= 0; search admitted >= 60 %", "two terms without a comma"),
            ("search admitted >= 101 %", "exceeds 100 %"),
            ("search admitted >= many", "invalid amount \"many\""),
            ("search admitted >= -1", "invalid amount \"-1\""),
            ("all search admitted >= 1", "is not a name and a measure"),
            ("apis unused <= 1 %", "unknown quota \"apis\" (did you mean \"api\"?)"),
            ("hourly unused <= 1 %", "the sliding window of hourly has no end"),
            (
                "customer used <= 1 %",
                "customer has a budget for each key (`per`), and used is measured of all requests",
            ),
        ] {
            let errors = errors(text).join("\n");
            assert!(errors.contains(hint), "{text}: {errors}");
        }
    }
}
