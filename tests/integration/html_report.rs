//! The HTML report of `tidegate replay --html` in a real browser: phone and desktop, light and dark, and print.
//!
//! `TIDEGATE_PICTURES=FOLDER cargo test --test integration html_report::` writes screenshots to that directory.

use crate::support::browser::{Browser, Screen};
use crate::support::program::run;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tidegate::demo;

#[test]
fn the_page_is_readable_on_every_screen() {
    let mut browser = Browser::start();
    let fixture = HtmlReportFixture::new();
    for page in
        [fixture.default_page(&[]), fixture.default_page(&["--compare", &fixture.write_policy("half.yaml", 1000)])]
    {
        for (width, scheme) in [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")] {
            let opened = browser.open(&page, Screen { width, scheme });
            let screen = format!("{} at {width}, {scheme}", page.display());
            assert_eq!(opened.messages, [""; 0], "{screen}");
            assert_eq!(opened.requests.len(), 1, "{screen}: {:?}", opened.requests);
            let scroll_width = browser.evaluate("document.documentElement.scrollWidth");
            assert!(scroll_width.as_u64() <= Some(u64::from(width)), "{screen}: page width is {scroll_width}");
            let charts = browser.evaluate(
                "[...document.querySelectorAll('.plot svg')].map(chart => chart.getBoundingClientRect()) \
                 .map(box => Math.min(box.width, box.height))",
            );
            let charts = charts.as_array().expect("a list");
            assert!(charts.len() > 5, "{screen}");
            assert!(charts.iter().all(|size| size.as_f64() > Some(50.0)), "{screen}: {charts:?}");
            assert_eq!(browser.evaluate(OVERLAPPING), 0, "{screen}: axis labels overlap");
            save_artifact(&format!("{}-{width}-{scheme}.png", stem(&page)), &browser.screenshot());
        }
        let pdf = browser.print_to_pdf();
        assert!(STANDARD.decode(&pdf).is_ok_and(|bytes| bytes.starts_with(b"%PDF")), "report prints to PDF");
        save_artifact(&format!("{}.pdf", stem(&page)), &pdf);
    }
}

#[test]
fn log_content_is_escaped_in_html() {
    let mut browser = Browser::start();
    let fixture = HtmlReportFixture::new();
    let markup = "<img src=x onerror=alert(1)><script>alert(2)</script>";
    let line = |second: usize| {
        let time = format!("07/Jun/2024:00:{:02}:{:02} +0000", second / 60, second % 60);
        let agent = format!("{markup}bot/{second} (compatible; Googlebot/2.1)");
        format!(
            "66.249.66.1 - - [{time}] \"GET /item/<script>alert(3)<img>{second} HTTP/1.1\" 200 5 \"-\" \"{agent}\"\n"
        )
    };
    fs::write(fixture.path("hostile.log"), (0..200).map(line).collect::<String>()).expect("file is writable");
    fixture.write_policy("strict.yaml", 10);
    let page = fixture.replay_to_page("hostile.log", "strict.yaml", &[]);
    let text = fs::read_to_string(&page).expect("page is UTF-8");
    assert!(text.contains("&lt;script&gt;") && !text.contains("<script") && !text.contains("<img"));
    let opened = browser.open(&page, Screen { width: 360, scheme: "light" });
    assert_eq!(opened.messages, [""; 0]);
    assert_eq!(browser.evaluate("document.querySelectorAll('script, img, iframe, link').length"), 0);
    let scroll_width = browser.evaluate("document.documentElement.scrollWidth");
    assert!(scroll_width.as_u64() <= Some(360), "page width is {scroll_width}");
}

/// Script that returns the number of axis labels that begin before the end of the previous label.
const OVERLAPPING: &str = "[...document.querySelectorAll('.times')].flatMap(axis => {
    const boxes = [...axis.children].map(word => word.getBoundingClientRect()).filter(box => box.width > 0);
    return boxes.slice(1).filter((box, place) => box.left < boxes[place].right);
}).length";

/// A temporary directory with a log and a policy.
struct HtmlReportFixture(TempDir);

impl HtmlReportFixture {
    fn new() -> Self {
        let fixture = Self(tempfile::tempdir().expect("temporary directory"));
        let mut log = Vec::new();
        demo::log::write(3, 1, 0.1, &mut log).expect("writing to memory cannot fail");
        fs::write(fixture.path("access.log"), log).expect("file is writable");
        fixture.write_policy("one.yaml", 2000);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the policy that `tidegate init` proposes, enforced and with another limit. Returns its path.
    fn write_policy(&self, name: &str, limit: u32) -> String {
        let proposed = run(&["init", &path_text(&self.path("access.log"))], b"").output;
        let lines = proposed.lines().map(|line| match line.trim_start().split_once(": ") {
            Some(("limit", _)) => format!("    limit: {limit}\n"),
            Some(("enforce" | "per_client", _)) => String::new(),
            _ => format!("{line}\n"),
        });
        fs::write(self.path(name), lines.collect::<String>()).expect("file is writable");
        path_text(&self.path(name))
    }

    fn default_page(&self, options: &[&str]) -> PathBuf {
        self.replay_to_page("access.log", "one.yaml", options)
    }

    fn replay_to_page(&self, log: &str, policy: &str, options: &[&str]) -> PathBuf {
        let page = self.path(&format!("{}-{}.html", log.trim_end_matches(".log"), options.len()));
        let mut arguments = vec!["replay", "--config"].into_iter().map(str::to_owned).collect::<Vec<_>>();
        arguments.extend([
            path_text(&self.path(policy)),
            "--html".into(),
            path_text(&page),
            path_text(&self.path(log)),
        ]);
        arguments.extend(options.iter().map(ToString::to_string));
        let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
        assert_eq!(outcome.code, 0, "{}", outcome.errors);
        page
    }
}

fn path_text(path: &Path) -> String {
    path.to_str().expect("a path as text").to_owned()
}

fn stem(page: &Path) -> String {
    page.file_stem().and_then(|stem| stem.to_str()).expect("page has a name").to_owned()
}

fn save_artifact(name: &str, base64: &str) {
    if let Some(dir) = std::env::var_os("TIDEGATE_PICTURES") {
        let bytes = STANDARD.decode(base64).expect("picture is base64");
        fs::write(Path::new(&dir).join(name), bytes).expect("picture directory exists");
    }
}
