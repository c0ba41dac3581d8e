//! `tidegate usage`: what customers have used of their budgets.

use super::admin_client::AdminArgs;
use super::{CommandError, path_segment, print};
use crate::admin::{Amount, UsageDocument, UsageRecord};
use clap::Args;
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;
use tidegate_policy::Units;

/// Arguments of `tidegate usage`.
#[derive(Clone, Debug, Args)]
pub(super) struct UsageArgs {
    /// Name of a customer (default: all).
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Shows the windows of a month that have ended, such as 2026-11; without a value, the current month.
    #[arg(long, value_name = "YYYY-MM", num_args = 0..=1, default_missing_value = "")]
    month: Option<String>,
    /// Prints a line of comma-separated values for each customer and quota, with --month for each window, too.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Prints the document of GET /api/v1/usage, with --month of GET /api/v1/usage/history.
    #[arg(long)]
    json: bool,
    /// Address and token of the admin listener.
    #[command(flatten)]
    admin: AdminArgs,
}

/// Prints the usage of the current windows, or of a month.
pub(super) fn run(args: &UsageArgs) -> ExitCode {
    match text(args) {
        Ok(text) => print(&text),
        Err(error) => error.report(),
    }
}

fn text(args: &UsageArgs) -> Result<String, CommandError> {
    let month = args.month.as_ref().filter(|month| !month.is_empty());
    let values = [("key", args.key.as_ref()), ("month", month)].map(|(name, value)| Some((name, value?)));
    let query: Vec<String> =
        values.into_iter().flatten().map(|(name, value)| format!("{name}={}", path_segment(value))).collect();
    let path = if args.month.is_some() { "/api/v1/usage/history" } else { "/api/v1/usage" };
    let response = args.admin.request(Method::GET, &format!("{path}?{}", query.join("&")), "")?;
    if args.json {
        return Ok(format!("{}\n", response.trim_end()));
    }
    Ok(if args.month.is_some() {
        let records: Vec<UsageRecord> = parse(&response)?;
        if args.csv { csv_of_windows(&records) } else { table_of_month(&records) }
    } else {
        let usage: Vec<UsageDocument> = parse(&response)?;
        if args.csv { csv(&usage) } else { table(&usage) }
    })
}

fn parse<T: DeserializeOwned>(response: &str) -> Result<T, CommandError> {
    serde_json::from_str(response)
        .map_err(|error| CommandError::Failed(format!("unexpected response of the gateway: {error}")))
}

fn csv_of_windows(records: &[UsageRecord]) -> String {
    let mut text = "window_start,window_end,quota,key,class,limit,used\n".to_owned();
    for UsageRecord { key, class, quota, limit, used, window_start, window_end } in records {
        let [limit, used] = [limit, used].map(|amount| json!(amount));
        let _ = writeln!(text, "{window_start},{window_end},{quota},{key},{class},{limit},{used}");
    }
    text
}

/// Returns a line for each customer and quota, with the sum of the windows.
fn table_of_month(records: &[UsageRecord]) -> String {
    if records.is_empty() {
        return "No window of a budget has ended in this month with usage by a listed key.\n".to_owned();
    }
    let header = ["customer", "class", "quota", "windows", "used"].map(str::to_owned);
    let of_one_budget =
        records.chunk_by(|one, other| (&one.key, &one.quota) == (&other.key, &other.quota)).map(|records| {
            let used = records.iter().filter_map(|record| record.used.units()).sum::<Units>();
            let UsageRecord { key, class, quota, .. } = &records[records.len() - 1];
            [key.clone(), class.clone(), quota.clone(), records.len().to_string(), Amount::from(used).to_string()]
        });
    aligned(&std::iter::once(header).chain(of_one_budget).collect::<Vec<_>>(), &[3, 4])
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
    aligned(&std::iter::once(header).chain(rows).collect::<Vec<_>>(), &[3, 4])
}

/// Returns rows as lines. The columns `numbers` are aligned to the right.
fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]], numbers: &[usize]) -> String {
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let is_number = numbers.contains(&column);
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
    fn month_is_summed_by_customer_and_quota() {
        let record = |key: &str, day: u32, used| UsageRecord {
            key: key.into(),
            class: "pro".into(),
            quota: "customer".into(),
            limit: Units::from_whole(500_000).into(),
            used: Units::from_milli(used).into(),
            window_start: format!("2026-11-{day:02}T00:00:00Z"),
            window_end: format!("2026-11-{:02}T00:00:00Z", day + 1),
        };
        let records = [record("acme", 1, 12_250), record("acme", 2, 1_000_000), record("trial", 2, 3000)];
        let expected = "customer  class  quota     windows      used\n\
                        acme      pro    customer        2  1,012.25\n\
                        trial     pro    customer        1         3\n";
        assert_eq!(table_of_month(&records), expected);
        assert!(table_of_month(&[]).starts_with("No window"));
        let csv = csv_of_windows(&records);
        let line = csv.lines().nth(1).expect("a window");
        assert_eq!(line, "2026-11-01T00:00:00Z,2026-11-02T00:00:00Z,customer,acme,pro,500000,12.25");
    }

    #[test]
    fn values_are_separated_by_commas() {
        let text = csv(&usage());
        let line = text.lines().nth(1).expect("a customer");
        assert_eq!(line, "acme,pro,true,customer,500000,12.25,499987.75,2026-11-28T00:00:00Z");
    }
}
