//! What people's browsers, players and telephones say of themselves, where it comes close to what programs say.

use super::token::contains;

/// Returns whether a browser or an app speaks, by the systems they name.
pub(super) fn speak(agent: &[u8]) -> bool {
    SYSTEMS.split(',').any(|mark| contains(agent, mark.as_bytes()))
}

const SYSTEMS: &str = "AppleWebKit,Gecko/,MSIE,Trident,Opera,Android,iPhone,iPad,iOS,CFNetwork,Darwin,Windows,Macintosh,\
    Mac OS X,HbbTV,Profile/MIDP,X11,Browser";

/// Returns whether a link in it may have been left by a browser, a toolbar or an app, for nobody to read.
pub(super) fn leave_links(agent: &[u8]) -> bool {
    LINKS.split(',').any(|mark| contains(agent, mark.as_bytes()))
}

const LINKS: &str = "MSIE,Trident,Browser,HbbTV,TV,WhatsApp,whatsapp,iPhone,iPad,iOS,Android,macOS";

/// Returns whether a browser has this behind its `compatible;`: itself or its system.
pub(super) fn call_compatible(name: &[u8]) -> bool {
    COMPATIBLE.split(' ').any(|browser| starts_with(name, browser))
}

const COMPATIBLE: &str = "\
    msie konqueror win linux x11 mac icab omniweb netfront abrowse opera firefox chrome safari \
    mozilla gecko trident midori amiga galeon epiphany android iphone ipad bitos wii nintendo \
    playstation xbox hbbtv smart viera series60 symbian palm nokia blackberry polaris teleca \
    wachat ibrowse edge avant aol dillo w3m links lynx elinks intel ppc ubuntu freebsd openbsd \
    netbsd sunos haiku beos risc maemo meego tizen webos web0s kindle puffin ucbrowser maxthon \
    seamonkey camino antgalio ekioh espial netsurf qupzilla falkon sraf lge kde otter";

/// Returns whether this product of people is known to send nothing but its name, cut short by a proxy or an app.
pub(super) fn use_product(name: &[u8]) -> bool {
    PRODUCTS.split(' ').any(|product| starts_with(name, product))
}

const PRODUCTS: &str = "\
    mozilla opera firefox chrome safari gecko iceweasel konqueror netscape links elinks lynx w3m \
    dillo sleipnir amiga apple android dalvik ucweb windows vlc itunes polycom nokia samsung \
    sonyericsson mot- lg blackberry huawei zte docomo barca sylera webox hotjava mosaic ncsa \
    cyberdog ibrowse icab omniweb avant lunascape maxthon com. roku playstation nintendo \
    internet msie vivaldi brave";

fn starts_with(name: &[u8], product: &str) -> bool {
    name.get(..product.len()).is_some_and(|start| start.eq_ignore_ascii_case(product.as_bytes()))
}
