//! Markers of browsers, players and phones whose user agents resemble those of programs.

use std::ops::Range;

/// Returns whether this is a complete user agent of a browser on a phone, of a WebView or of Electron, to which apps add their
/// names, or that of an app of Apple's systems (`Name/1.0 CFNetwork/1568 Darwin/24.0.0`).
pub(super) fn is_app_browser(agent: &[u8]) -> bool {
    let has = |mark: &[u8]| contains(agent, mark);
    let is_phone = || PHONE_PLATFORMS.iter().any(|platform| contains(agent, platform));
    has(b" CFNetwork/") && has(b" Darwin/")
        || agent.starts_with(b"Mozilla/5.0 (")
            && match has(b"AppleWebKit/") {
                true => has(b"Mobile/") || is_phone() && has(b"Safari/") || has(b"Electron/") && has(b"Chrome/"),
                false => is_phone() && has(b"Gecko/") && has(b"Firefox/"),
            }
}

const PHONE_PLATFORMS: &[&[u8]] = &[b"Android", b"OpenHarmony", b"KAIOS"];

/// Returns whether a link in the user agent may come from a browser, a toolbar or an app.
pub(super) fn has_browser_link(agent: &[u8]) -> bool {
    BROWSER_LINK_MARKERS.iter().any(|mark| contains(agent, mark))
}

#[rustfmt::skip]
const BROWSER_LINK_MARKERS: &[&[u8]] = &[
    b"MSIE", b"Trident", b"Browser", b"HbbTV", b"TV", b"WhatsApp", b"whatsapp", b"iPhone",
    b"iPad", b"iOS", b"Android", b"macOS",
];

/// Returns the range of a phone's device model: from the platform to the closing parenthesis; empty if there is none.
pub(super) fn device_model(agent: &[u8]) -> Range<usize> {
    let Some(system) = position(agent, b"Android").or_else(|| position(agent, b"android")) else {
        return 0..0;
    };
    let model = &agent[system..];
    system..system + model.iter().position(|&byte| byte == b')').unwrap_or(model.len())
}

/// Returns whether `agent` contains `mark`, case-sensitively.
pub(super) fn contains(agent: &[u8], mark: &[u8]) -> bool {
    position(agent, mark).is_some()
}

fn position(agent: &[u8], mark: &[u8]) -> Option<usize> {
    let mut windows = agent.windows(mark.len());
    // The first byte rules out most positions, and is much cheaper than a comparison of slices.
    windows.position(|window| window[0] == mark[0] && window == mark)
}
