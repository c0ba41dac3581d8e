//! What a request on the listener for other proxies is for, by its path.

use super::asked_request::Naming;

/// Path of reports of costs.
const SETTLE: &str = "/settle";
/// Prefix of the paths of nginx.
const NGINX: &str = "/nginx";

/// Purpose of a request on the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum ProxyEndpoint<'a> {
    /// Reports the cost of an admitted request.
    Settle,
    /// Asks about a request.
    Ask(Naming<'a>, RefusalForm),
}

/// Form of the response to a request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum RefusalForm {
    /// The response that the client of the gateway would get.
    AsSent,
    /// 403 with the status in a field, because nginx passes no other status on.
    Forbidden,
}

/// Returns the purpose of a request for `path_and_query`, as sent: nothing is decoded or resolved, so that no path of a
/// client below `path_prefix` is another endpoint.
pub(in crate::gateway) fn endpoint<'a>(path_and_query: &'a str, path_prefix: &str) -> ProxyEndpoint<'a> {
    let below =
        |prefix| path_and_query.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    if let Some(rest) = below(path_prefix) {
        return ProxyEndpoint::Ask(Naming::ByItself(rest), RefusalForm::AsSent);
    }
    match path_and_query.split('?').next() {
        Some(SETTLE) => ProxyEndpoint::Settle,
        _ if below(NGINX).is_some() => ProxyEndpoint::Ask(Naming::ByFields, RefusalForm::Forbidden),
        _ => ProxyEndpoint::Ask(Naming::ByFields, RefusalForm::AsSent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_selects_the_endpoint_and_is_not_resolved() {
        let by_itself = |rest| ProxyEndpoint::Ask(Naming::ByItself(rest), RefusalForm::AsSent);
        let by_fields = |form| ProxyEndpoint::Ask(Naming::ByFields, form);
        for (path, expected) in [
            ("/", by_fields(RefusalForm::AsSent)),
            ("/auth?x=/settle", by_fields(RefusalForm::AsSent)),
            ("/nginx", by_fields(RefusalForm::Forbidden)),
            ("/nginx/x", by_fields(RefusalForm::Forbidden)),
            ("/nginxx", by_fields(RefusalForm::AsSent)),
            ("/settle", ProxyEndpoint::Settle),
            ("/settle?x", ProxyEndpoint::Settle),
            ("/settle/", by_fields(RefusalForm::AsSent)),
            ("/envoy", by_itself("")),
            ("/envoy/item?id=1", by_itself("/item?id=1")),
            ("/envoy?id=1", by_itself("?id=1")),
            ("/envoy/../settle", by_itself("/../settle")),
            ("/envoyer", by_fields(RefusalForm::AsSent)),
        ] {
            assert_eq!(endpoint(path, "/envoy"), expected, "{path}");
        }
    }
}
