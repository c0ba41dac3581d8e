//! Cookie of the live page: set by the admin listener, kept from the origin by the gateway.

/// Beginning of the cookie's name; the port of the admin listener follows.
pub const COOKIE_PREFIX: &str = "tidegate_session";
