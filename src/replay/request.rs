//! A line as the gate would have seen it.

use super::log::{LogLine, LoggedClient};
use crate::policy::bot_detection::{HeadersSeen, Referer};
use crate::policy::route::normalize;
use http::{Method, Version};
use std::borrow::Cow;
use std::net::IpAddr;

/// What a line asks for, checked as the gate checks it.
#[derive(Clone, Debug)]
pub struct ReplayRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The host; empty where it is not known.
    pub host: &'a str,
    /// The path, normalised.
    pub path: Cow<'a, str>,
    /// The query.
    pub query: Option<&'a str>,
    /// The client's address, or one that stands for its name ...
    pub client: IpAddr,
    /// ... which proves nothing.
    pub is_named: bool,
    /// The user agent; empty where there is none.
    pub user_agent: &'a [u8],
    /// The page that led here.
    pub referer: Referer,
    /// The headers that were there, as far as is known.
    pub seen: HeadersSeen,
}

impl<'a> ReplayRequest<'a> {
    /// The request of a line; nothing where the gate would not have taken it for one.
    pub fn of(line: &'a LogLine<'_>) -> Option<Self> {
        let asked = line.request.as_ref()?;
        let fits = asked.path.starts_with('/') || (asked.path == "*" && asked.method == Method::OPTIONS);
        if !fits || matches!(asked.method, Method::CONNECT | Method::TRACE) {
            return None;
        }
        let host = line.host.as_deref().unwrap_or_default();
        let referer = match line.missing.contains(super::log::LogField::Referer) {
            true => Referer::Unknown,
            false => Referer::of(line.referer.as_deref(), host),
        };
        let old_http = asked.version == Version::HTTP_10;
        Some(Self {
            method: &asked.method,
            host,
            path: normalize(&asked.path).ok()?,
            query: asked.query.as_deref(),
            client: line.client.address(),
            is_named: matches!(line.client, LoggedClient::HostName(_)),
            user_agent: line.user_agent.as_deref().unwrap_or_default(),
            referer,
            seen: line
                .native
                .as_ref()
                .map_or(HeadersSeen::default().with(HeadersSeen::HTTP_10, old_http), |own| own.seen),
        })
    }
}
