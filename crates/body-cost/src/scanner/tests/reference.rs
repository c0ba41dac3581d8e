//! Straightforward reading of a whole body with `serde_json`.

use super::*;
use serde_json::Value;

/// Path as keys, with a weight in milli-units.
pub(super) type KeyPath = (Vec<String>, u64);

/// Value of a path: a number in billionths, or `None` if it is invalid.
type Billionths = Option<u128>;

/// Returns the cost in a whole body that is not coded.
pub(super) fn reference_cost(paths: &[KeyPath], form: BodyForm, body: &[u8]) -> FoundCost {
    let body = body.strip_prefix(BOM).unwrap_or(body);
    let documents = match form {
        BodyForm::Json if body.trim_ascii().is_empty() => return FoundCost::Missing,
        BodyForm::Json => match serde_json::from_slice(body) {
            Ok(document) => vec![document],
            Err(_) => return FoundCost::Malformed,
        },
        BodyForm::EventStream => {
            events(body).iter().filter_map(|event| serde_json::from_slice(event.as_bytes()).ok()).collect()
        }
        BodyForm::Lines => {
            body.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
        }
    };
    sum(paths, &documents)
}

/// Returns the data of all complete events.
fn events(stream: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stream).replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut data) = (Vec::new(), Vec::new());
    // What follows the last line end is no line.
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    for line in lines.split('\n') {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name {
            _ if line.is_empty() => events.push(std::mem::take(&mut data).join("\n")),
            "data" => data.push(value.strip_prefix(' ').unwrap_or(value).to_owned()),
            _ => {}
        }
    }
    events
}

/// Returns the weighted sum of the last value of each path.
fn sum(paths: &[KeyPath], documents: &[Value]) -> FoundCost {
    let last = |path: &KeyPath| documents.iter().rev().find_map(|document| value(&path.0, document));
    let values: Vec<(Billionths, u64)> = paths.iter().filter_map(|path| Some((last(path)?, path.1))).collect();
    if values.is_empty() {
        return FoundCost::Missing;
    }
    let weighted = values.iter().map(|(value, weight)| value.and_then(|value| value.checked_mul((*weight).into())));
    let sum = weighted.sum::<Option<u128>>().map(|sum| sum.div_ceil(1_000_000_000));
    let milli = sum.and_then(|milli| u64::try_from(milli).ok());
    milli.map_or(FoundCost::Invalid, |milli| FoundCost::Amount { milli })
}

/// Returns the value of a path, unless it is absent.
fn value(path: &[String], document: &Value) -> Option<Billionths> {
    let step = |value: &Value, key: &String| match value {
        Value::Object(members) => members.get(key).cloned(),
        Value::Array(elements) if *key == "0" || !key.starts_with('0') => {
            elements.get(key.parse::<usize>().ok()?).cloned()
        }
        _ => None,
    };
    match path.iter().try_fold(document.clone(), |value, key| step(&value, key))? {
        Value::Null => None,
        Value::Number(number) => Some(billionths(&number.to_string())),
        Value::String(text) => Some(billionths(&text)),
        _ => Some(None),
    }
}

/// Returns a number of up to nine decimal places in billionths.
fn billionths(text: &str) -> Billionths {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number: f64 = text.parse().ok().filter(|_| is_number)?;
    match text.parse::<u64>() {
        Ok(whole) => Some(u128::from(whole) * 1_000_000_000),
        Err(_) if number < 0.0 => None,
        Err(_) => format!("{:.9}", number.abs()).replace('.', "").parse().ok(),
    }
}
