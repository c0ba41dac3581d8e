//! Reports of costs by other proxies.

use super::pending_decisions::SettledCosts;
use serde::Deserialize;
use serde_json::Number;
use serde_json::error::Category;
use std::collections::BTreeMap;
use tidegate_policy::quota::Quota;

/// Maximum size of a report, in bytes: room for the names of a hundred quotas.
pub(in crate::gateway) const MAX_SETTLEMENT_SIZE: usize = 16 * 1024;

/// The cost of an admitted request, as its proxy reports it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Settlement {
    /// Id of the decision.
    pub(in crate::gateway) decision: u64,
    /// Units by quota. The quotas of the route that it does not name cost what the route expects.
    pub(in crate::gateway) costs: SettledCosts,
}

/// Error of a report.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum SettlementError {
    /// Another method than POST.
    #[error("use POST")]
    Method,
    /// A body that ended early.
    #[error("the body is incomplete")]
    Incomplete,
    /// A body that is too large.
    #[error("the body is larger than 16 KiB")]
    TooLarge,
    /// A body that is no JSON.
    #[error("the body is no JSON: {0}")]
    Json(String),
    /// A document with other members or values.
    #[error("{0}; send {{\"decision\": ID, \"cost\": {{\"QUOTA\": UNITS}}}}")]
    Invalid(String),
    /// No pending decision has the id.
    #[error("the decision is unknown or already settled")]
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettlementDocument {
    decision: String,
    #[serde(default)]
    cost: BTreeMap<String, Number>,
}

impl Settlement {
    /// Parses a report. Returns an error for a quota that is not one of `quotas`, and for a negative cost.
    pub(in crate::gateway) fn parse(body: &[u8], quotas: &[Quota]) -> Result<Self, SettlementError> {
        let document: SettlementDocument = serde_json::from_slice(body).map_err(|error| match error.classify() {
            Category::Data => SettlementError::Invalid(error.to_string()),
            _ => SettlementError::Json(error.to_string()),
        })?;
        let id = &document.decision;
        // Digits only: the parser would also accept a sign.
        let is_id = id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let decision = u64::from_str_radix(id, 16).ok().filter(|_| is_id);
        let decision = decision
            .ok_or_else(|| SettlementError::Invalid("decision: a decision id is 16 hexadecimal digits".into()))?;
        let cost = |(name, units): (String, Number)| {
            if !quotas.iter().any(|quota| quota.name == name) {
                return Err(SettlementError::Invalid(format!("cost: no quota is named {name:?}")));
            }
            match units.to_string().parse() {
                Ok(units) => Ok((name, units)),
                Err(_) => {
                    Err(SettlementError::Invalid(format!("cost.{name}: found {units}, needs units such as 2 or 0.25")))
                }
            }
        };
        let costs = document.cost.into_iter().map(cost).collect::<Result<_, _>>()?;
        Ok(Self { decision, costs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_policy::{Units, fixtures};

    fn parse(body: &str) -> Result<Settlement, SettlementError> {
        Settlement::parse(body.as_bytes(), &[fixtures::quota("api", 10), fixtures::quota("search", 10)])
    }

    #[test]
    fn report_names_the_decision_and_its_costs() {
        let costs = vec![("api".to_owned(), Units::from_whole(2)), ("search".to_owned(), Units::from_milli(250))];
        let report = parse(r#"{"decision": "00000000000000fF", "cost": {"search": 0.25, "api": 2}}"#);
        assert_eq!(report, Ok(Settlement { decision: 255, costs }));
        assert_eq!(parse(r#"{"decision": "0000000000000001"}"#), Ok(Settlement { decision: 1, costs: Vec::new() }));
    }

    #[test]
    fn invalid_report_says_what_is_valid() {
        for (body, part) in [
            ("", "no JSON"),
            ("{", "no JSON"),
            ("[]", "send {\"decision\": ID"),
            (r#"{"decision": 7}"#, "expected a string"),
            (r#"{"decision": "7"}"#, "16 hexadecimal digits"),
            (r#"{"decision": "+000000000000001"}"#, "16 hexadecimal digits"),
            (r#"{"cost": {}}"#, "missing field `decision`"),
            (r#"{"decision": "0000000000000001", "costs": {}}"#, "unknown field `costs`"),
            (r#"{"decision": "0000000000000001", "cost": {"spi": 1}}"#, "no quota is named \"spi\""),
            (r#"{"decision": "0000000000000001", "cost": {"api": -1}}"#, "cost.api: found -1"),
            (r#"{"decision": "0000000000000001", "cost": {"api": 1e300}}"#, "needs units such as 2"),
            (r#"{"decision": "0000000000000001", "cost": {"api": "1"}}"#, "expected a JSON number"),
        ] {
            let error = parse(body).expect_err(body).to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Settlement::parse(&body, &[]);
        }
    }
}
