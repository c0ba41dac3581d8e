//! Markers of browsers, players and phones whose user agents resemble those of programs.

use std::ops::Range;

/// Returns whether the user agent names a platform of browsers or apps.
pub(super) fn has_platform_marker(agent: &[u8]) -> bool {
    PLATFORM_MARKERS.iter().any(|mark| contains(agent, mark))
}

#[rustfmt::skip] // one word per line would take too many lines
const PLATFORM_MARKERS: &[&[u8]] = &[
    b"AppleWebKit", b"Gecko/", b"MSIE", b"Trident", b"Opera", b"Android", b"iPhone", b"iPad",
    b"iOS", b"CFNetwork", b"Darwin", b"Windows", b"Macintosh", b"Mac OS X", b"HbbTV",
    b"Profile/MIDP", b"X11", b"Browser",
];

/// Returns whether this is a complete user agent of a browser on a phone, of a WebView or of Electron. Apps add their
/// names to it.
pub(super) fn is_app_browser(agent: &[u8]) -> bool {
    let has = |mark: &[u8]| contains(agent, mark);
    let is_phone = || PHONE_PLATFORMS.iter().any(|platform| contains(agent, platform));
    agent.starts_with(b"Mozilla/5.0 (")
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

/// Returns whether browsers send this after `compatible;`: a browser or a platform.
pub(super) fn is_compatible_browser(name: &[u8]) -> bool {
    COMPATIBLE_BROWSERS.iter().any(|browser| starts_with(name, browser))
}

#[rustfmt::skip]
const COMPATIBLE_BROWSERS: &[&str] = &[
    "msie", "konqueror", "win", "linux", "x11", "mac", "icab", "omniweb", "netfront", "abrowse",
    "opera", "firefox", "chrome", "safari", "mozilla", "gecko", "trident", "midori", "amiga",
    "galeon", "epiphany", "android", "iphone", "ipad", "bitos", "wii", "nintendo", "playstation",
    "xbox", "hbbtv", "smart", "viera", "series60", "symbian", "palm", "nokia", "blackberry",
    "polaris", "teleca", "wachat", "ibrowse", "edge", "avant", "aol", "dillo", "w3m", "links",
    "lynx", "elinks", "intel", "ppc", "ubuntu", "freebsd", "openbsd", "netbsd", "sunos", "haiku",
    "beos", "risc", "maemo", "meego", "tizen", "webos", "web0s", "kindle", "puffin", "ucbrowser",
    "maxthon", "seamonkey", "camino", "antgalio", "ekioh", "espial", "netsurf", "qupzilla",
    "falkon", "sraf", "lge", "kde", "otter",
];

/// Returns whether clients of humans are known to send only this product, truncated by a proxy or an app.
pub(super) fn is_known_product(name: &[u8]) -> bool {
    KNOWN_PRODUCTS.iter().any(|product| starts_with(name, product))
}

#[rustfmt::skip]
const KNOWN_PRODUCTS: &[&str] = &[
    "mozilla", "opera", "firefox", "chrome", "safari", "gecko", "iceweasel", "konqueror",
    "netscape", "links", "elinks", "lynx", "w3m", "dillo", "sleipnir", "amiga", "apple",
    "android", "dalvik", "ucweb", "windows", "vlc", "itunes", "polycom", "nokia", "samsung",
    "sonyericsson", "mot-", "lg", "blackberry", "huawei", "zte", "docomo", "barca", "sylera",
    "webox", "hotjava", "mosaic", "ncsa", "cyberdog", "ibrowse", "icab", "omniweb", "avant",
    "lunascape", "maxthon", "com.", "roku", "playstation", "nintendo", "internet", "msie",
    "vivaldi", "brave", "browsh", "edbrowse", "netsurf", "retawq", "eww", "emacs", "amaya", "arachne",
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

fn starts_with(name: &[u8], product: &str) -> bool {
    name.get(..product.len()).is_some_and(|start| start.eq_ignore_ascii_case(product.as_bytes()))
}
