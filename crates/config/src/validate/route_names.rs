//! Names of routes: the path as written, and what tells routes with one path apart.

use http::Method;
use std::collections::HashMap;
use tidegate_policy::identity::CredentialSource;
use tidegate_policy::route::Route;

/// Maximum length of the conditions in a name, in characters. A name is a label of metrics.
const MAX_CONDITIONS: usize = 64;

/// Adds the names of their conditions to the names of routes of which another one has the path, as in `/search (x-depth)`. Values
/// are left out, because they may be secrets; routes that differ in them alone are numbered. A route without conditions keeps its
/// name.
pub(super) fn tell_apart(routes: &mut [Route]) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    routes.iter().for_each(|route| *counts.entry(route.name.clone()).or_default() += 1);
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for route in routes.iter_mut().filter(|route| counts[&route.name] > 1) {
        let conditions = conditions(route);
        if conditions.is_empty() {
            continue;
        }
        let name = format!("{} ({conditions})", route.name);
        let number = numbers.entry(name.clone()).or_default();
        *number += 1;
        route.name = match *number {
            1 => name,
            number => format!("{} ({conditions} #{number})", route.name),
        };
    }
}

/// Returns the conditions of a route besides its path, without their values.
fn conditions(route: &Route) -> String {
    // A condition GET includes HEAD.
    let methods =
        route.methods.iter().filter(|method| **method != Method::HEAD || !route.methods.contains(&Method::GET));
    let methods = methods.map(ToString::to_string);
    let query = route.query.iter().map(|(name, _)| format!("?{name}"));
    let bodies = route.json.iter().map(|condition| format!("body {}", condition.path));
    let fields = route.fields.iter().map(|condition| match &condition.source {
        CredentialSource::Header(name) => name.to_string(),
        CredentialSource::Cookie(name) => format!("cookie {name}"),
    });
    let all: Vec<String> =
        methods.chain(route.hosts.iter().cloned()).chain(query).chain(bodies).chain(fields).collect();
    let text = all.join(", ");
    match text.char_indices().nth(MAX_CONDITIONS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
