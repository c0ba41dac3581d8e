//! The live page of the admin listener in a real browser: its figures against the API, phone to wide screen, light and
//! dark, login, hostile texts, and axe-core.
//!
//! `TIDEGATE_PICTURES=FOLDER cargo test --test integration live_page::` writes screenshots to that directory.

use crate::support::browser::{Browser, OpenedPage, Screen};
use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::wait::wait_until;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const DESKTOP: Screen = Screen { width: 1280, scheme: "light" };
const PHONE: Screen = Screen { width: 360, scheme: "light" };

#[test]
fn page_shows_what_the_api_says_on_every_screen() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    let axe = std::fs::read_to_string(InstalledClients::locate().package("axe-core/axe.min.js")).expect("installed");
    for width in [360, 1280, 2560] {
        for scheme in ["light", "dark"] {
            let screen = format!("{width}, {scheme}");
            fixture.open(&mut browser, Screen { width, scheme });
            browser.wait_until("document.querySelector('#decisions table') !== null");
            let shown = page_text(&mut browser);
            for text in expected_texts(&fixture.gateway.state()) {
                assert!(shown.contains(&text), "{screen}: {text:?} is missing in\n{shown}");
            }
            for identifier in ["user_agent_match", "user_agent_no_match", "behavior:"] {
                assert!(!shown.contains(identifier), "{screen}: {identifier} is not in words in\n{shown}");
            }
            let scroll_width = browser.evaluate("document.documentElement.scrollWidth");
            assert!(scroll_width.as_u64() <= Some(width.into()), "{screen}: page width is {scroll_width}");
            save_picture(&format!("live-{width}-{scheme}.png"), &browser.screenshot());
            browser.evaluate(&axe);
            let run = "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => \
                       `${id}: ${nodes.map(({ html }) => html).join(' ')}`))";
            assert_eq!(browser.evaluate(run), json!([]), "{screen}");
            browser.evaluate("document.querySelector('#decisions [data-block]').click()");
            assert_eq!(browser.evaluate(run), json!([]), "{screen}, with the dialog");
            fixture.assert_quiet(&browser.activity(), &screen);
        }
    }
}

#[test]
fn page_shows_what_the_windows_keep_of_the_promise() {
    let origin = Origin::plain();
    let rules = "quotas: { api: { limit: 5, window: { fixed: 24h } } }\nclasses: [{ name: person }]\n\
                 routes: [{ match: \"/item/*\", cost: { api: 1 } }]\npromise: { people_refused: 10% }\n";
    let fixture = PageFixture { gateway: TestGateway::with_rules(origin.address(), rules), origin };
    for page in 0..10 {
        fixture.gateway.connect().get(&format!("/item/{page}"), "");
    }
    wait_until("the figures of the window", || fixture.gateway.state()["promise"]["current"]["people_refused"] == 0.5);
    let mut browser = Browser::start();
    fixture.open(&mut browser, Screen { width: 360, scheme: "light" });
    let quotas = "document.querySelector('#quotas').innerText";
    let missed = "This window: missed: 50 % of people’s pages refused (at most 10 %).";
    browser.wait_until(&format!("{quotas}.includes('{missed}')"));
    fixture.gateway.clock.advance(Duration::from_secs(24 * 3600));
    browser.wait_until(&format!("{quotas}.includes('This window: kept: nothing to compare yet.')"));
    browser.wait_until("document.querySelector('#problems').innerText.includes('missed the promise. 50.0 %')");
    save_picture("live-promise.png", &browser.screenshot());
}

#[test]
fn budget_shows_the_keys_that_have_used_most() {
    let origin = Origin::plain();
    // The key of the customer is `test`.
    let rules = "api_keys: [{ name: acme, class: pro, \
                 sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 }]\n\
                 quotas: { customer: { per: api_key, limit: 2, limits: { pro: 5 }, window: { fixed: 1h } } }\n\
                 classes: [{ name: pro, when: { api_key: own } }]\nroutes: [{ match: /**, cost: { customer: 1 } }]\n";
    let fixture = PageFixture { gateway: TestGateway::with_rules(origin.address(), rules), origin };
    let get = |fields: &str| fixture.gateway.connect().get("/", fields).status;
    assert_eq!([0; 4].map(|_| get("Authorization: Bearer test\r\n")), [200; 4]);
    assert_eq!([0; 3].map(|_| get("")), [200, 200, 429]);
    let mut browser = Browser::start();
    fixture.open(&mut browser, PHONE);
    browser.wait_until("document.querySelectorAll('#quotas tbody tr').length === 2");
    let card = browser.evaluate("document.querySelector('#quotas .card').innerText");
    let text = "A budget for each key: keys: 2, used: 6 units, max_keys: 100,000.";
    assert!(card.as_str().is_some_and(|card| card.starts_with("customer") && card.contains(text)), "{card}");
    let cells = "[...row.cells].map((cell) => cell.innerText)";
    let rows = browser.evaluate(&format!("[...document.querySelectorAll('#quotas tbody tr')].map((row) => {cells})"));
    // The limit of an address depends on its class.
    assert_eq!(rows, json!([["acme", "4", "5"], ["127.0.0.1", "2", ""]]));
    fixture.assert_quiet(&browser.activity(), "with a budget");
}

#[test]
fn page_follows_the_gateway_and_explains_decisions() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    let state = fixture.gateway.state();
    assert_eq!(state["quotas"][0]["used"], 7);
    for _ in 0..5 {
        assert_eq!(fixture.gateway.connect().get("/page/new", "").status, 200);
    }
    browser.wait_until("document.querySelector('#quotas').innerText.includes('12 of 100 units used')");

    let filter = |browser: &mut Browser, name: &str, value: &str| {
        browser.evaluate(&format!(
            "(() => {{ const field = document.querySelector('#filter').elements.{name}; field.value = '{value}'; \
             field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
        ));
    };
    let rows = "[...document.querySelectorAll('#decisions tbody tr')].map((row) => row.innerText)";
    filter(&mut browser, "reason", "tier");
    browser.wait_until(&format!("{rows}.length === 2 && {rows}.every((row) => row.includes('GPTBot'))"));
    filter(&mut browser, "client", "203.0.113.");
    browser.wait_until("document.querySelector('#decisions').innerText === 'No stored decision matches.'");
    filter(&mut browser, "client", "");
    browser.wait_until(&format!("{rows}.length === 2"));

    browser.evaluate("document.querySelector('#decisions [data-explain]').click()");
    browser.wait_until("document.querySelector('#explanation').open");
    let explanation = browser.evaluate("document.querySelector('#explanation').innerText");
    let explanation = explanation.as_str().expect("a text");
    for text in ["GET example.com/page/1 of 127.0.0.1", "GPTBot/1.0", "refused (tier), status 429", "tier: refused"] {
        assert!(explanation.contains(text), "{text:?} is missing in\n{explanation}");
    }
    save_picture("live-explanation.png", &browser.screenshot());
    browser.evaluate("document.querySelector('#explanation button').click()");

    assert_eq!(browser.evaluate("document.querySelectorAll('#classes .plot').length"), 5);
    let first_time = "document.querySelector('#classes .times').innerText";
    let hour = browser.evaluate(first_time);
    browser.evaluate("document.querySelector('input[value=day]').click()");
    assert_ne!(browser.evaluate(first_time), hour, "the charts show another span");

    fixture.gateway.write(fixture.origin.address(), &RULES.replace("limit: 100", "limt: 100"));
    assert_eq!(fixture.gateway.admin_request("POST", "/api/v1/reload", "").0, 422);
    browser.wait_until("document.querySelector('#problems').innerText.includes('Reload failed')");
    assert!(page_text(&mut browser).contains("unknown key \"limt\""));
    fixture.assert_quiet(&browser.activity(), "after the changes");
}

#[test]
fn phone_shows_status_verdict_and_evidence_of_each_decision_without_scrolling() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    fixture.open(&mut browser, PHONE);
    browser.wait_until("document.querySelectorAll('#decisions tbody tr').length === 10");
    let out_of_sight = browser.evaluate(
        "[...document.querySelectorAll('#decisions tbody tr')].flatMap((row) => { \
           const card = row.getBoundingClientRect(); \
           return ['.status', '.verdict', '.evidence', '.client', '.request', '.action'].filter((cell) => { \
             const { left, right, top, bottom, width, height } = row.querySelector(cell).getBoundingClientRect(); \
             return !(left >= 0 && right <= innerWidth && top >= card.top && bottom <= card.bottom && width > 0 && height > 0); \
           }).map((cell) => `${cell}: ${row.innerText}`); })",
    );
    assert_eq!(out_of_sight, json!([]));
    let tall = browser.evaluate(
        "[...document.querySelectorAll('#decisions tbody tr')].filter((row) => row.offsetHeight > innerHeight / 2).length",
    );
    assert_eq!(tall, 0, "a card fits half a screen");
    let wide = browser.evaluate(
        "[...document.querySelectorAll('.scroll')].filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.innerText)",
    );
    assert_eq!(wide, json!([]), "no table is wider than the screen");
}

#[test]
fn wide_screen_is_used_to_its_edges() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    for (width, columns) in [(1280, 1), (1920, 2), (2560, 3), (3840, 3)] {
        fixture.open(&mut browser, Screen { width, scheme: "light" });
        let sections =
            "[...document.querySelectorAll('#sections > .column')].map((part) => part.getBoundingClientRect())";
        let rights = browser.evaluate(&format!("Math.max(...{sections}.map(({{ right }}) => right))"));
        assert!(rights.as_f64() >= Some(f64::from(width) - 20.0), "{width}: ends at {rights}");
        let count = browser.evaluate(&format!("new Set({sections}.map(({{ left }}) => Math.round(left))).size"));
        assert_eq!(count, columns, "{width}");
    }
}

#[test]
fn quota_chart_shows_usage_with_limit_tiers_and_pace_over_the_window() {
    let origin = Origin::plain();
    let rules = RULES.replace("{ above: 0%, shed: 100% }", "{ above: 50%, shed: 25% }, { above: 80%, shed: 100% }");
    let gateway = TestGateway::with_rules(origin.address(), &rules.replace("fixed: 7d }", "fixed: 7d }, pacing: even"));
    gateway.clock.advance(Duration::from_secs(2 * 86_400));
    for page in 0..7 {
        assert_eq!(gateway.connect().get(&format!("/page/{page}"), "").status, 200);
    }
    let mut browser = Browser::start();
    browser.open_url(&format!("http://{}/", gateway.admin_address()), DESKTOP);
    browser.wait_until("document.querySelector('#quotas .card') !== null");
    browser.wait_until("document.querySelector('#quotas').innerText.includes('7 of 100 units used')");
    let heights = |browser: &mut Browser, style: &str| {
        let lines = format!("[...document.querySelectorAll('#quotas .plot line.{style}')]");
        browser.evaluate(&format!("{lines}.map((line) => Number(line.getAttribute('y1')))"))
    };
    // From the top of the chart, in percent.
    assert_eq!(heights(&mut browser, "limit"), json!([0]));
    assert_eq!(heights(&mut browser, "tier"), json!([50, 20]));
    let path = |browser: &mut Browser, style: &str| {
        let path = browser.evaluate(&format!("document.querySelector('#quotas .plot path.{style}').getAttribute('d')"));
        path.as_str().expect("a path").to_owned()
    };
    assert_eq!(path(&mut browser, "even"), "M0.0 100.00L1000.0 0.00", "from the start of the window to its end");
    assert!(path(&mut browser, "used").ends_with(" 93.00"), "{}", path(&mut browser, "used"));
    assert!(path(&mut browser, "plan").starts_with('M'));
    let levels = browser.evaluate("document.querySelector('#quotas .levels').innerText");
    for label in ["robot 25 %", "robot 100 %", "limit 100"] {
        assert!(levels.as_str().is_some_and(|levels| levels.contains(label)), "{label} is missing in {levels}");
    }
    let dates = "[...document.querySelectorAll('#quotas .times span')].every((mark) => /^\\d+ [A-Z][a-z]+$/.test(mark.innerText))";
    assert_eq!(browser.evaluate(dates), true, "a week has a date at each mark");
    let label = browser.evaluate("document.querySelector('#quotas .plot').getAttribute('aria-label')");
    assert_eq!(label, "Usage of api: 7 of 100 units used; tiers refuse robot 25 % from 50; robot 100 % from 80");
}

#[test]
fn page_shows_statuses_bytes_and_latency_by_class_and_route() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    let state = fixture.gateway.state();
    assert_eq!(state["responses"]["statuses"], json!({ "2xx": 8, "429": 2 }));
    assert!(state["responses"]["bytes"].as_u64() > Some(0), "{state}");
    let requests: u64 =
        state["latency"].as_array().into_iter().flatten().filter_map(|range| range["requests"].as_u64()).sum();
    assert_eq!(requests, 8, "admitted requests have a latency");
    let page = state["routes"].as_array().into_iter().flatten().find(|route| route["route"] == "/page/*");
    let page = page.expect("the route is listed");
    assert_eq!((&page["admitted"], &page["refused"]), (&json!(7), &json!(2)));
    assert!(page["responses"]["median_ms"].as_f64() <= page["responses"]["p95_ms"].as_f64(), "{page}");
    let cells = |row: &str| {
        let rows = "[...document.querySelectorAll('#routes tbody tr, #classes tbody tr')]";
        format!("{rows}.filter((row) => row.cells[0].innerText === '{row}').map((row) => row.innerText).join(' ')")
    };
    for (row, column) in [("/page/*", "429"), ("robot", "429"), ("person", "bytes")] {
        let titles =
            "[...document.querySelectorAll('#routes thead, #classes thead')].map((head) => head.innerText).join(' ')";
        browser.wait_until(&format!("{titles}.includes('{column}')"));
        browser.wait_until(&format!("/\\d (B|kB)\\s/.test({0}) && /\\d m?s/.test({0})", cells(row)));
    }
}

#[test]
fn client_is_blocked_and_unblocked_from_the_row_of_its_decision() {
    let fixture = PageFixture::start(TOKENS);
    let mut browser = Browser::start();
    browser.open_url(&fixture.url(), PHONE);
    log_in(&mut browser, "open-sesame-open-sesame");
    browser.wait_until("document.querySelector('#decisions [data-block]') !== null");
    // A row that has the focus stays, and shows nevertheless what has become of its client.
    browser.evaluate("document.querySelector('#decisions [data-block]').focus()");
    browser.evaluate("document.activeElement.click()");
    let form = "document.querySelector('#block-form').elements";
    assert_eq!(browser.evaluate("document.querySelector('#block').open"), true);
    assert_eq!(browser.evaluate(&format!("{form}.target.value")), "127.0.0.1");
    assert_eq!(browser.evaluate(&format!("{form}.seconds.value")), "3600", "an hour, unless another time is chosen");
    assert_eq!(browser.evaluate(&format!("{form}.why.value.length > 0")), true, "a reason is proposed");
    assert_eq!(browser.evaluate("document.querySelector('#block-warning').hidden"), false, "it may be a proxy's");
    save_picture("live-block.png", &browser.screenshot());
    assert_eq!(fixture.gateway.connect().get("/style.css", "").status, 200, "nothing is blocked yet");
    browser.evaluate("document.querySelector('#block-now').click()");
    browser.wait_until("!document.querySelector('#block').open");
    let refusal = fixture.gateway.connect().get("/style.css", "");
    assert_eq!((refusal.status, refusal.text().contains("\"reason\":\"blocked\"")), (429, true), "{}", refusal.text());
    browser.wait_until("document.querySelector('#problems .switch')?.innerText.includes('block 127.0.0.1/32 until ')");
    browser.wait_until("document.querySelector('#decisions [data-end]')?.innerText === 'unblock'");
    assert_eq!(browser.evaluate("document.activeElement.innerText"), "unblock", "the focus stays on the button");
    browser.evaluate("document.activeElement.click()");
    browser.wait_until("document.querySelector('#problems .switch') === null");
    assert_eq!(fixture.gateway.connect().get("/style.css", "").status, 200);
    fixture.assert_quiet(&browser.activity(), "after the block");
}

#[test]
fn reader_is_told_the_command_that_blocks() {
    let fixture = PageFixture::start(TOKENS);
    let mut browser = Browser::start();
    browser.open_url(&fixture.url(), PHONE);
    log_in(&mut browser, "readers-of-the-admin-page");
    browser.wait_until("document.querySelector('#decisions [data-block]') !== null");
    browser.evaluate("document.querySelector('#decisions [data-block]').click()");
    assert_eq!(browser.evaluate("document.querySelector('#block-now').hidden"), true);
    browser.evaluate(
        "(() => { const form = document.querySelector('#block-form'); form.elements.why.value = \"it's $(scraping)\"; \
         form.dispatchEvent(new Event('input')); form.dispatchEvent(new Event('submit', { cancelable: true })); })()",
    );
    let command = browser.evaluate("document.querySelector('#block-text').innerText");
    assert_eq!(command, "tidegate block 127.0.0.1 --for 1h --why 'its $(scraping)'");
    assert_eq!(fixture.gateway.state()["switches"], json!([]));
}

#[test]
fn rows_stay_while_one_of_them_has_the_focus() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    browser.wait_until("document.querySelectorAll('#decisions tbody tr').length === 10");
    browser.evaluate("document.querySelector('#decisions [data-block]').focus()");
    let first = "document.querySelector('#decisions [data-explain]').dataset.explain";
    let before = browser.evaluate(first);
    assert_eq!(fixture.gateway.connect().get("/page/late", "").status, 200);
    browser.wait_until("!document.querySelector('#held').hidden");
    assert_eq!(browser.evaluate(first), before);
    browser.evaluate("document.activeElement.blur()");
    browser.wait_until("document.querySelectorAll('#decisions tbody tr').length === 11");
    assert_eq!(browser.evaluate("document.querySelector('#held').hidden"), true);
}

#[test]
fn switch_does_not_look_like_a_problem() {
    let fixture = PageFixture::start("");
    let on = r#"{"target": "203.0.113.9", "effect": "block", "for_s": 3600, "why": "scrapes"}"#;
    assert_eq!(fixture.gateway.admin_request("POST", "/api/v1/switches", on).0, 200);
    fixture.gateway.write(fixture.origin.address(), &RULES.replace("limit: 100", "limt: 100"));
    assert_eq!(fixture.gateway.admin_request("POST", "/api/v1/reload", "").0, 422);
    let mut browser = Browser::start();
    for scheme in ["light", "dark"] {
        fixture.open(&mut browser, Screen { width: 1280, scheme });
        browser.wait_until("document.querySelector('#decisions .refused') !== null");
        let mut colors = |style: &str, property: &str| {
            let color = browser.evaluate(&format!("getComputedStyle(document.querySelector('{style}')).{property}"));
            color.as_str().expect("a color").to_owned()
        };
        let problem = "#problems p:not(.switch)";
        assert_ne!(colors("#problems .switch", "borderLeftColor"), colors(problem, "borderLeftColor"), "{scheme}");
        assert_ne!(colors("#problems .switch", "backgroundColor"), colors(problem, "backgroundColor"), "{scheme}");
        assert_ne!(
            colors("#decisions .refused", "color"),
            colors(problem, "borderLeftColor"),
            "{scheme}: no error either"
        );
    }
}

#[test]
fn page_shows_what_the_cache_answered_and_saved() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    assert_eq!(browser.evaluate("document.querySelector('#cache-section').hidden"), true);

    let origin =
        Origin::with_script(|_, connection| connection.reply("200 OK", "Cache-Control: max-age=60\r\n", b"page"));
    let gateway = TestGateway::with_rules(origin.address(), &format!("cache: {{ disk: off }}\n{RULES}"));
    (0..4).for_each(|_| drop(gateway.connect().get("/page/1", "")));
    browser.open_url(&format!("http://{}/", gateway.admin_address()), DESKTOP);
    let shown = "document.querySelector('#cache').innerText";
    browser.wait_until(&format!("{shown}.includes('3 units of api saved since the start')"));
    browser.wait_until(&format!(
        "{shown}.includes('75 % of 4 requests on cached routes answered by stored responses since the start')"
    ));
    // A new window begins: what was saved before it does not count.
    gateway.clock.advance(Duration::from_secs(8 * 86_400));
    browser.wait_until(&format!("{shown}.includes('0 units of api saved')"));
    assert_eq!(browser.activity().messages, [""; 0]);
}

#[test]
fn texts_of_clients_are_shown_as_texts() {
    let fixture = PageFixture::start("");
    let markup = "<img/src=x/onerror=document.title='taken'>";
    for _ in 0..20 {
        fixture.gateway.connect().get("/page/&lt;i&gt;", &format!("User-Agent: {markup}<script>bot/1.0\r\n"));
    }
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    browser.wait_until("document.querySelector('#decisions table') !== null");
    assert!(page_text(&mut browser).contains(markup), "the user agent is shown");
    assert_eq!(browser.evaluate("document.querySelectorAll('#live img, #live script').length"), 0);
    assert_eq!(browser.evaluate("document.title"), "Tidegate");
    fixture.assert_quiet(&browser.activity(), "hostile texts");
}

#[test]
fn token_opens_a_session_that_scripts_cannot_read() {
    let fixture = PageFixture::start(TOKENS);
    let mut browser = Browser::start();
    browser.open_url(&fixture.url(), Screen { width: 360, scheme: "light" });
    browser.wait_until("!document.querySelector('#login').hidden");
    save_picture("live-login.png", &browser.screenshot());
    assert_eq!(browser.evaluate("document.querySelector('#live').hidden"), true);

    log_in(&mut browser, "open-sesame-open-sesamf");
    browser.wait_until("document.querySelector('#login-error').textContent.startsWith('token: wrong')");
    log_in(&mut browser, "readers-of-the-admin-page");
    browser.wait_until("document.querySelector('#quotas table, #quotas .card') !== null");
    assert_eq!(browser.evaluate("document.querySelector('#control').hidden"), true, "a reader changes nothing");
    let forbidden = "fetch('/api/v1/reload', { method: 'POST' }).then((response) => response.status)";
    assert_eq!(browser.evaluate(forbidden), 403);

    browser.evaluate("document.querySelector('#logout').click()");
    browser.wait_until("document.querySelector('#login') && !document.querySelector('#login').hidden");
    assert_eq!(browser.evaluate("fetch('/api/v1/state').then((response) => response.status)"), 401);
    log_in(&mut browser, "open-sesame-open-sesame");
    browser.wait_until("!document.querySelector('#live').hidden && !document.querySelector('#control').hidden");
    assert_eq!(browser.evaluate("document.cookie"), "", "no script reads the session");

    browser.evaluate(
        "(() => { const form = document.querySelector('#set-used'); form.elements.used.value = '55.5'; form.requestSubmit(); })()",
    );
    browser.wait_until("document.querySelector('#control-result').textContent === 'api: 55.5 used, 7 before'");
    browser.wait_until("document.querySelector('#config').innerText.includes('55.5')");
    browser.evaluate(
        "(() => { const form = document.querySelector('#set-switch'); form.elements.target.value = '203.0.113.9'; form.elements.why.value = 'scrapes'; form.requestSubmit(); })()",
    );
    browser.wait_until("document.querySelector('#switches').innerText.includes('203.0.113.9/32')");
    browser.wait_until("document.querySelector('#problems').innerText.includes('block 203.0.113.9/32 until ')");
    save_picture("live-switches.png", &browser.screenshot());
    browser.evaluate("document.querySelector('[data-end]').click()");
    browser.wait_until("document.querySelector('#switches').innerText === 'No switch is in effect.'");
    let submit = |browser: &mut Browser, minutes: &str| {
        browser.evaluate(&format!(
            "(() => {{ const form = document.querySelector('#set-switch'); form.elements.effect.value = 'maintenance'; form.elements.minutes.value = '{minutes}'; form.elements.why.value = 'repair'; form.dispatchEvent(new Event('submit', {{ cancelable: true }})); }})()",
        ));
    };
    submit(&mut browser, "abc");
    browser.wait_until("document.querySelector('#control-result').textContent === 'Give the duration in minutes.'");
    let on = r#"{"target": "maintenance", "effect": "maintenance", "except": ["192.0.2.0/24"]}"#;
    let (status, _) = fixture.gateway.admin_request("POST", "/api/v1/switches", on);
    assert_eq!(status, 200);
    browser.wait_until("document.querySelector('#problems').innerText.includes('except 192.0.2.0/24')");
    submit(&mut browser, "30");
    browser.wait_until("/^maintenance until .*, except 192.0.2.0.24: repair$/.test(document.querySelector('#control-result').textContent)");
    browser.evaluate("document.querySelector('#reload').click()");
    browser.wait_until("document.querySelector('#control-result').textContent.startsWith('Reloaded: ')");
    save_picture("live-control.png", &browser.screenshot());
}

/// A gateway that has served people and refused bots.
struct PageFixture {
    gateway: TestGateway,
    origin: Origin,
}

impl PageFixture {
    /// Starts the gateway with an `admin` section.
    fn start(admin: &str) -> Self {
        let origin = Origin::plain();
        let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{admin}"));
        for page in 0..7 {
            assert_eq!(gateway.connect().get(&format!("/page/{page}"), "").status, 200);
        }
        for _ in 0..2 {
            assert_eq!(gateway.connect().get("/page/1", "User-Agent: GPTBot/1.0\r\n").status, 429);
        }
        assert_eq!(gateway.connect().get("/style.css", "User-Agent: GPTBot/1.0\r\n").status, 200);
        Self { gateway, origin }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.gateway.admin_address())
    }

    /// Opens the page and waits for its first figures.
    fn open(&self, browser: &mut Browser, screen: Screen) {
        browser.open_url(&self.url(), screen);
        browser.wait_until("document.querySelector('#quotas .card') !== null");
    }

    /// Asserts that nothing was logged, and that all requests went to the admin listener.
    fn assert_quiet(&self, activity: &OpenedPage, screen: &str) {
        assert_eq!(activity.messages, [""; 0], "{screen}");
        let url = self.url();
        assert!(activity.requests.iter().all(|request| request.starts_with(&url)), "{screen}: {:?}", activity.requests);
    }
}

fn log_in(browser: &mut Browser, token: &str) {
    browser.wait_until("!document.querySelector('#login').hidden");
    browser.evaluate(&format!(
        "(() => {{ document.querySelector('#token').value = '{token}'; document.querySelector('#login').requestSubmit(); }})()"
    ));
}

fn page_text(browser: &mut Browser) -> String {
    browser.evaluate("document.querySelector('main').innerText").as_str().expect("a text").to_owned()
}

/// Returns texts that the page shows of a state.
fn expected_texts(state: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let quota = &state["quotas"][0];
    let mut texts = vec![
        text(&quota["name"]),
        format!("{} of {} units used, 0 reserved, {} remain", quota["used"], quota["limit"], quota["remaining"]),
        text(&state["origin"]["authority"]),
        text(&state["listen"][0]),
        "2 by tier".into(),
        // The first letter is a capital only on the screen.
        "he user agent matches the bot GPTBot".into(),
        "gptbot".into(),
    ];
    texts.extend(state["classes"].as_array().expect("a list").iter().map(text));
    for kind in ["clients", "networks", "paths", "user_agents"] {
        let spenders = state["spenders"][kind].as_array().expect("a list").iter();
        texts.extend(spenders.map(|spender| text(&spender["name"])).filter(|name| !name.is_empty()));
    }
    texts.extend(state["routes"].as_array().expect("a list").iter().map(|route| text(&route["route"])));
    texts.extend(state["scopes"].as_array().expect("a list").iter().map(|scope| text(&scope["name"])));
    texts
}

fn save_picture(name: &str, base64: &str) {
    if let Some(dir) = std::env::var_os("TIDEGATE_PICTURES") {
        let bytes = STANDARD.decode(base64).expect("a picture is base64");
        std::fs::write(Path::new(&dir).join(name), bytes).expect("the directory of pictures exists");
    }
}

const RULES: &str = "
quotas: { api: { limit: 100, window: { fixed: 7d }, tiers: { robot: [ { above: 0%, shed: 100% } ] } } }
classes: [ { name: robot, when: { kind: declared_bot } }, { name: person } ]
routes: [ { match: /page/*, cost: { api: 1 } } ]
scopes: { search: { concurrency: 4 } }
";

const TOKENS: &str =
    "admin: { listen: '127.0.0.1:0', token: open-sesame-open-sesame, read_token: readers-of-the-admin-page }\n";
