//! `tidegate usage`: what customers have used of their budgets.

use super::admin_client::AdminArgs;
use super::{CommandError, path_segment, print};
use crate::admin::UsageDocument;
use clap::Args;
use http::Method;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// Arguments of `tidegate usage`.
#[derive(Clone, Debug, Args)]
pub(super) struct UsageArgs {
    /// Name of a customer (default: all).
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Prints a line of comma-separated values for each customer and quota.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Prints the document of GET /api/v1/usage.
    #[arg(long)]
    json: bool,
    /// Address and token of the admin listener.
    #[command(flatten)]
    admin: AdminArgs,
}

/// Prints the usage of the current windows.
pub(super) fn run(args: &UsageArgs) -> ExitCode {
    match text(args) {
        Ok(text) => print(&text),
        Err(error) => error.report(),
    }
}

fn text(args: &UsageArgs) -> Result<String, CommandError> {
    let query = args.key.as_ref().map_or(String::new(), |key| format!("?key={}", path_segment(key)));
    let response = args.admin.request(Method::GET, &format!("/api/v1/usage{query}"), "")?;
    if args.json {
        return Ok(format!("{}\n", response.trim_end()));
    }
    let usage: Vec<UsageDocument> = serde_json::from_str(&response)
        .map_err(|error| CommandError::Failed(format!("unexpected response of the gateway: {error}")))?;
    Ok(if args.csv { csv(&usage) } else { table(&usage) })
}

/// Names of customers, classes and quotas have no character that needs quotes.
fn csv(usage: &[UsageDocument]) -> String {
    let mut text = "key,class,valid,quota,limit,used,remaining,window_end\n".to_owned();
    for UsageDocument { key, class, valid, quota, limit, used, remaining, window_end } in usage {
        let [limit, used, remaining] = [limit, used, remaining].map(|amount| json!(amount));
        let _ = writeln!(text, "{key},{class},{valid},{quota},{limit},{used},{remaining},{window_end}");
    }
    text
}

fn table(usage: &[UsageDocument]) -> String {
    if usage.is_empty() {
        return "No listed key has a budget: write per: api_key at a quota, and api_keys.\n".to_owned();
    }
    let header = ["customer", "class", "quota", "used", "limit", "until"].map(str::to_owned);
    let rows = usage.iter().map(|usage| {
        let customer = if usage.valid { usage.key.clone() } else { format!("{} (invalid)", usage.key) };
        let (used, limit) = (usage.used.to_string(), usage.limit.to_string());
        [customer, usage.class.clone(), usage.quota.clone(), used, limit, usage.window_end.clone()]
    });
    let rows: Vec<[String; 6]> = std::iter::once(header).chain(rows).collect();
    let widths: [usize; 6] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let is_number = matches!(column, 3 | 4);
            let _ = if is_number { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::Units;

    fn usage() -> Vec<UsageDocument> {
        let document = |key: &str, valid, used| UsageDocument {
            key: key.into(),
            class: "pro".into(),
            valid,
            quota: "customer".into(),
            limit: Units::from_whole(500_000).into(),
            used: Units::from_milli(used).into(),
            remaining: Units::from_whole(500_000).saturating_sub(Units::from_milli(used)).into(),
            window_end: "2026-11-28T00:00:00Z".into(),
        };
        vec![document("acme", true, 12_250), document("trial", false, 0)]
    }

    #[test]
    fn table_has_a_line_for_each_customer() {
        let expected = "customer         class  quota      used    limit  until\n\
                        acme             pro    customer  12.25  500,000  2026-11-28T00:00:00Z\n\
                        trial (invalid)  pro    customer      0  500,000  2026-11-28T00:00:00Z\n";
        assert_eq!(table(&usage()), expected);
        assert!(table(&[]).starts_with("No listed key"));
    }

    #[test]
    fn values_are_separated_by_commas() {
        let text = csv(&usage());
        let line = text.lines().nth(1).expect("a customer");
        assert_eq!(line, "acme,pro,true,customer,500000,12.25,499987.75,2026-11-28T00:00:00Z");
    }
}
