//! Lines of robots.txt about the use of pages. None of their forms is a standard; this is the only place that has them:
//!
//! - `Content-Signal`: draft-romm-aipref-contentsignals-00 of 1 October 2025, as Cloudflare writes it.
//! - `Content-Usage`: draft-ietf-aipref-attach-04 of 28 October 2025, with the words of draft-ietf-aipref-vocab-06 of 28
//!   April 2026. It has no word for the answer of a program to a user.
//! - `License`: RSL 1.0 of December 2025.

use tidegate_policy::terms::UsageTerms;

/// Directive with the URL of the license. It stands above all groups.
pub(super) const LICENSE: &str = "License";

/// Returns the lines that state `terms`, for each group.
pub fn usage_lines(terms: UsageTerms) -> Vec<String> {
    let UsageTerms { search, agent, training } = terms;
    let line = |name: &str, [yes, no]: [&str; 2], words: &[(&str, Option<bool>)]| {
        let stated = words.iter().filter_map(|(word, permission)| Some((word, (*permission)?)));
        let values: Vec<String> =
            stated.map(|(word, is_allowed)| format!("{word}={}", if is_allowed { yes } else { no })).collect();
        (!values.is_empty()).then(|| format!("{name}: {}", values.join(", ")))
    };
    let signal =
        line("Content-Signal", ["yes", "no"], &[("search", search), ("ai-input", agent), ("ai-train", training)]);
    let usage = line("Content-Usage", ["y", "n"], &[("search", search), ("train-ai", training)]);
    signal.into_iter().chain(usage).collect()
}

/// Returns the name of the directive in a line, without the value.
pub(super) fn directive(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b':').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_states_what_it_has_words_for() {
        let lines = |search, agent, training| usage_lines(UsageTerms { search, agent, training }).join("; ");
        assert_eq!(
            lines(Some(true), Some(false), Some(false)),
            "Content-Signal: search=yes, ai-input=no, ai-train=no; Content-Usage: search=y, train-ai=n"
        );
        assert_eq!(lines(None, None, Some(true)), "Content-Signal: ai-train=yes; Content-Usage: train-ai=y");
        assert_eq!(lines(None, Some(false), None), "Content-Signal: ai-input=no");
        assert_eq!(lines(None, None, None), "");
    }
}
