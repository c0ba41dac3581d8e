//! Parses a robots.txt like crawlers do. Written from RFC 9309, independent of the gateway's own parser.

/// A parsed robots.txt.
pub struct RobotsReader(Vec<Group>);

/// A group: its user agents, its rules (`true` allows) and its delays. Rules apply to all agents named since the last
/// rule; delays apply to those named since the last line of another kind.
#[derive(Default)]
struct Group {
    agents: Vec<String>,
    rules: Vec<(bool, Vec<u8>)>,
    delay_lists: Vec<(Vec<String>, Vec<f64>)>,
}

impl RobotsReader {
    pub fn parse_text(text: &[u8]) -> Self {
        Self(parse_groups(text))
    }

    /// Returns true if `agent` may fetch `path`.
    pub fn allows(&self, agent: &str, path: &str) -> bool {
        let path = normalize_path(path.as_bytes());
        let rules = self.groups_for(agent).into_iter().flat_map(|group| &group.rules);
        let matching = rules.filter(|(_, pattern)| !pattern.is_empty() && pattern_matches(pattern, &path));
        // Of rules with equal length, the one that allows has precedence.
        matching.map(|(allow, pattern)| (pattern.len(), *allow)).max().is_none_or(|(_, allow)| allow)
    }

    /// Returns every delay that applies to `agent`, in the order of the text.
    pub fn delays(&self, agent: &str) -> Vec<f64> {
        self.delays_by_group(agent).concat()
    }

    /// Returns true if a group names `agent`.
    pub fn has_group_for(&self, agent: &str) -> bool {
        self.0.iter().any(|group| group.applies_to(agent))
    }

    /// Returns true if each group that names `agent` states the same single delay.
    pub fn has_one_delay_per_group(&self, agent: &str) -> bool {
        self.delays_by_group(agent).iter().all(|delays| delays.len() == 1)
    }

    fn groups_for(&self, agent: &str) -> Vec<&Group> {
        let name = if self.has_group_for(agent) { agent } else { "*" };
        self.0.iter().filter(|group| group.applies_to(name)).collect()
    }

    /// Returns the delays of each group that names `agent`, or else of each `*` group.
    fn delays_by_group(&self, agent: &str) -> Vec<Vec<f64>> {
        let name = if self.has_group_for(agent) { agent } else { "*" };
        let applies = |agents: &[String]| agents.iter().any(|listed| listed.eq_ignore_ascii_case(name));
        let delay_lists = self.0.iter().flat_map(|group| &group.delay_lists);
        delay_lists.filter(|(agents, _)| applies(agents)).map(|(_, delays)| delays.clone()).collect()
    }
}

impl Group {
    fn applies_to(&self, name: &str) -> bool {
        self.agents.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

/// Returns the lines of a text, without line endings.
pub fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| matches!(byte, b'\r' | b'\n')).filter(|line| !line.is_empty()).collect()
}

fn parse_groups(text: &[u8]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut names_agents = false;
    for line in lines(text) {
        let Some((key, value)) = parse_record(line) else { continue };
        let continues_group = std::mem::take(&mut names_agents);
        match key.to_ascii_lowercase().as_str() {
            "user-agent" | "useragent" | "user agent" => {
                names_agents = true;
                if groups.last().is_none_or(|group| !group.rules.is_empty()) {
                    groups.push(Group::default());
                }
                let group = groups.last_mut().expect("a group was added");
                if !continues_group || group.delay_lists.is_empty() {
                    group.delay_lists.push(Default::default());
                }
                group.agents.push(product_token(value));
                group.delay_lists.last_mut().expect("a delay list was added").0.push(product_token(value));
            }
            "allow" => add_rule(&mut groups, true, value),
            "disallow" | "dissallow" | "dissalow" | "disalow" | "diasllow" | "disallaw" => {
                add_rule(&mut groups, false, value);
            }
            "crawl-delay" | "crawl delay" => {
                let number = std::str::from_utf8(value).ok().and_then(|value| value.parse::<f64>().ok());
                let delay_list = groups.last_mut().and_then(|group| group.delay_lists.last_mut());
                delay_list.into_iter().for_each(|delay_list| delay_list.1.extend(number));
            }
            _ => {}
        }
    }
    groups
}

fn add_rule(groups: &mut [Group], allow: bool, value: &[u8]) {
    let Some(group) = groups.last_mut() else { return };
    let pattern = normalize_path(value);
    // Google's extension: the index of a directory is the directory.
    if let Some(dir) = pattern.strip_suffix(b"/index.html").filter(|_| allow) {
        group.rules.push((true, [dir, b"/$"].concat()));
    }
    group.rules.push((allow, pattern));
}

fn parse_record(line: &[u8]) -> Option<(String, &[u8])> {
    let line = line.split(|&byte| byte == b'#').next()?.trim_ascii();
    let (key, value) = match line.iter().position(|&byte| byte == b':') {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => {
            let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
            let [key, value] = words[..] else { return None };
            (key, value)
        }
    };
    Some((String::from_utf8_lossy(key.trim_ascii()).into_owned(), value.trim_ascii()))
}

fn product_token(value: &[u8]) -> String {
    if value == b"*" || value.starts_with(b"* ") || value.starts_with(b"*\t") {
        return "*".into();
    }
    value
        .iter()
        .map(|&byte| char::from(byte))
        .take_while(|letter| letter.is_ascii_alphabetic() || "-_".contains(*letter))
        .collect()
}

/// Returns the path with upper-case escapes, and with bytes beyond ASCII escaped.
fn normalize_path(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        match after {
            [high, low, after @ ..] if first == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.extend([b'%', high.to_ascii_uppercase(), low.to_ascii_uppercase()]);
                rest = after;
                continue;
            }
            _ if first.is_ascii() => out.push(first),
            _ => out.extend(format!("%{first:02X}").into_bytes()),
        }
        rest = after;
    }
    out
}

fn pattern_matches(pattern: &[u8], path: &[u8]) -> bool {
    let (pattern, is_anchored) = pattern.strip_suffix(b"$").map_or((pattern, false), |pattern| (pattern, true));
    let mut ends = std::collections::BTreeSet::from([0]);
    for &byte in pattern {
        ends = match byte {
            b'*' => (*ends.first().unwrap_or(&path.len())..=path.len()).collect(),
            _ => ends.into_iter().filter(|&end| path.get(end) == Some(&byte)).map(|end| end + 1).collect(),
        };
        if ends.is_empty() {
            return false;
        }
    }
    !is_anchored || ends.contains(&path.len())
}
