//! Modules of the packages: the types they declare and the modules they refer to. Code of tests is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Path of a module in its package: `["policy", "tier"]`.
type ModulePath = Vec<String>;

/// A directory with a manifest and its modules.
pub(super) struct Package {
    modules: BTreeMap<ModulePath, Module>,
}

/// A source file.
#[derive(Debug, Default, PartialEq)]
struct Module {
    file: String,
    /// Names of all items of the module itself.
    items: BTreeSet<String>,
    /// Names of all types in the file, also of those in functions.
    types: Vec<String>,
    /// Modules inside it, except those for tests.
    children: BTreeSet<String>,
    /// Path and local name of each `use` declaration.
    imports: Vec<(ModulePath, String)>,
    /// Names that it re-exports and does not use itself.
    re_exports: BTreeSet<String>,
    /// Other paths that start with `crate`, `self`, `super` or a module inside it.
    paths: Vec<ModulePath>,
}

/// Returns the root package and the packages in `crates`.
pub(super) fn packages(root: &Path) -> Vec<Package> {
    let members = fs::read_dir(root.join("crates")).into_iter().flatten();
    let mut directories: Vec<PathBuf> = members.map(|entry| entry.expect("readable directory").path()).collect();
    directories.push(root.to_owned());
    directories.retain(|directory| directory.join("Cargo.toml").is_file());
    directories.iter().map(|directory| Package::read(root, &directory.join("src"))).collect()
}

impl Package {
    fn read(root: &Path, src: &Path) -> Self {
        let mut modules = BTreeMap::new();
        for file in files(src) {
            let name =
                |path: &Path, base| path.strip_prefix(base).expect("file is below its base").display().to_string();
            let path = name(&file.with_extension(""), src).split('/').map(str::to_owned).collect();
            let text = fs::read_to_string(&file).expect("source is UTF-8");
            modules.insert(module_path(path), Module { file: name(&file, root), ..Module::parse(&text) });
        }
        Self::from_modules(modules)
    }

    /// Drops the modules that no module declares outside of tests.
    fn from_modules(mut modules: BTreeMap<ModulePath, Module>) -> Self {
        let is_declared = |path: &ModulePath| {
            let declares =
                |depth: usize| modules.get(&path[..depth]).is_some_and(|m| m.children.contains(&path[depth]));
            path == &["main"] || (0..path.len()).all(declares)
        };
        let declared: BTreeSet<ModulePath> = modules.keys().filter(|path| is_declared(path)).cloned().collect();
        modules.retain(|path, _| declared.contains(path));
        Self { modules }
    }

    /// Returns the type names that are declared more than once.
    pub(super) fn duplicate_types(&self) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        self.modules.values().flat_map(|module| &module.types).filter(|name| !seen.insert(*name)).cloned().collect()
    }

    /// Returns the references that are part of a circle of files, as `file -> file`.
    ///
    /// A module and the modules inside it may refer to each other in any way: they are one unit to all other files. A circle
    /// therefore counts if none of its files is a module that has all others inside it. Of such a circle, the references
    /// between those modules are returned that stand side by side in the innermost module around all files of the circle.
    pub(super) fn circular_references(&self) -> BTreeSet<String> {
        let references: BTreeMap<_, _> = self.modules.keys().map(|path| (path, self.references(path))).collect();
        let is_inside = |path: &[String], outer: &[String]| path.len() > outer.len() && path.starts_with(outer);
        let mut circular = BTreeSet::new();
        for outer in self.modules.keys() {
            let targets = |from: &ModulePath| references[from].iter().filter(|target| is_inside(target, outer));
            for from in self.modules.keys().filter(|path| is_inside(path, outer)) {
                let is_beside = |target: &&ModulePath| target[outer.len()] != from[outer.len()];
                for target in targets(from).filter(is_beside) {
                    if reaches(target, from, targets) {
                        circular.insert(format!("{} -> {}", self.modules[from].file, self.modules[target].file));
                    }
                }
            }
        }
        circular
    }

    /// Returns the other modules that a module uses. A re-export is no use of a module inside it.
    fn references(&self, from: &ModulePath) -> BTreeSet<ModulePath> {
        let module = &self.modules[from];
        let resolve = |path: &ModulePath| self.resolve(from, path, &mut BTreeSet::new());
        let imports = module.imports.iter().filter_map(|(path, name)| Some((resolve(path)?, name)));
        let used = imports.filter(|(target, name)| !(target.starts_with(from) && module.re_exports.contains(*name)));
        let targets = used.map(|(target, _)| target).chain(module.paths.iter().filter_map(resolve));
        targets.filter(|target| target != from).collect()
    }

    /// Returns the module that declares the item at the end of a path in module `from`. Follows re-exports. Returns
    /// `None` for items of other packages.
    fn resolve(
        &self,
        from: &[String],
        path: &[String],
        visited: &mut BTreeSet<(ModulePath, ModulePath)>,
    ) -> Option<ModulePath> {
        let Some((head, rest)) = path.split_first() else { return Some(from.to_vec()) };
        if !visited.insert((from.to_vec(), path.to_vec())) {
            return None;
        }
        let module = self.modules.get(from)?;
        match head.as_str() {
            "crate" => return self.resolve(&[], rest, visited),
            "self" => return self.resolve(from, rest, visited),
            "super" => return self.resolve(&from[..from.len().checked_sub(1)?], rest, visited),
            "*" => return Some(from.to_vec()),
            child if module.children.contains(child) => {
                return self.resolve(&[from, &[child.into()]].concat(), rest, visited);
            }
            item if module.items.contains(item) => return Some(from.to_vec()),
            _ => {}
        }
        // An import that starts elsewhere is of another package.
        let starts_here =
            |first: &String| ["crate", "self", "super"].contains(&first.as_str()) || module.children.contains(first);
        let imports = module.imports.iter().filter(|(import, _)| import.first().is_some_and(starts_here));
        let mut candidates = imports.filter_map(|(import, name)| match import.split_last() {
            Some((_, glob)) if name == "*" => Some([glob, path].concat()),
            _ if name == head => Some([import, rest].concat()),
            _ => None,
        });
        candidates.find_map(|candidate| self.resolve(from, &candidate, visited))
    }
}

/// Returns whether a module reaches another one.
fn reaches<'a, Targets: Iterator<Item = &'a ModulePath>>(
    start: &'a ModulePath,
    end: &ModulePath,
    targets: impl Fn(&ModulePath) -> Targets,
) -> bool {
    let mut reached = BTreeSet::from([start]);
    let mut pending = vec![start];
    while let Some(path) = pending.pop() {
        pending.extend(targets(path).filter(|target| reached.insert(*target)));
    }
    reached.contains(end)
}

impl Module {
    fn parse(text: &str) -> Self {
        let tokens = without_tests(&tokens(text));
        let mut module = Self::default();
        let mut words = BTreeSet::new();
        let mut depth = 0;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let next = tokens.get(at + 1).copied().unwrap_or_default();
            match *token {
                "{" => depth += 1,
                "}" => depth -= 1,
                "use" => {
                    let end = at + tokens[at..].iter().position(|token| *token == ";").expect("a use ends");
                    let first = module.imports.len();
                    collect_imports(&tokens[at + 1..end], &[], &mut module.imports);
                    if is_public(&tokens[..at]) {
                        module.re_exports.extend(module.imports[first..].iter().map(|(_, name)| name.clone()));
                    }
                    at = end;
                }
                first if next == "::" && is_word(first) && (at == 0 || tokens[at - 1] != "::") => {
                    let mut path = vec![token.to_string()];
                    while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(|token| is_word(token)) {
                        at += 2;
                        path.push(tokens[at].to_owned());
                    }
                    words.insert(first);
                    module.paths.push(path);
                }
                "mod" if depth == 0 => drop(module.children.insert(next.to_owned())),
                "struct" | "enum" | "union" | "trait" if next.starts_with(char::is_uppercase) => {
                    module.types.push(next.to_owned());
                }
                // A `type` within braces is an associated type.
                "type" if depth == 0 => module.types.push(next.to_owned()),
                "fn" | "const" | "static" if depth == 0 => drop(module.items.insert(next.to_owned())),
                "macro_rules" => drop(module.items.insert(tokens[at + 2].to_owned())),
                word => drop(words.insert(word)),
            }
            at += 1;
        }
        module.re_exports.retain(|name| !words.contains(name.as_str()));
        let is_local = |first: &str| ["crate", "self", "super"].contains(&first) || module.children.contains(first);
        module.paths.retain(|path| is_local(&path[0]));
        module.items.extend(module.types.iter().cloned());
        module
    }
}

/// Returns whether the declaration after these tokens has a visibility.
fn is_public(before: &[&str]) -> bool {
    let end = match before.last() {
        Some(&")") => before.iter().rposition(|token| *token == "(").unwrap_or(0),
        _ => before.len(),
    };
    before[..end].last() == Some(&"pub")
}

/// Reads a use tree.
fn collect_imports(tree: &[&str], prefix: &[String], imports: &mut Vec<(ModulePath, String)>) {
    let words = |tokens: &[&str]| {
        tokens.iter().filter(|token| **token != "::").map(|token| token.to_string()).collect::<Vec<_>>()
    };
    if let Some(open) = tree.iter().position(|token| *token == "{") {
        let prefix = [prefix, &words(&tree[..open])].concat();
        let mut depth = 0;
        let is_comma = |token: &&str| {
            depth += i32::from(*token == "{") - i32::from(*token == "}");
            depth == 0 && *token == ","
        };
        let branches = tree[open + 1..tree.len() - 1].split(is_comma);
        branches.filter(|branch| !branch.is_empty()).for_each(|branch| collect_imports(branch, &prefix, imports));
        return;
    }
    let (path, alias) = match tree {
        [path @ .., "as", alias] => (path, Some(*alias)),
        path => (path, None),
    };
    let mut path = [prefix, &words(path)].concat();
    if path.len() > 1 && path.last().is_some_and(|word| word == "self") {
        path.pop();
    }
    let name = alias.unwrap_or(path.last().expect("an import has a name")).to_owned();
    imports.push((path, name));
}

/// Drops the items with `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].starts_with(&["#", "[", "cfg", "(", "test"]) {
            while tokens.get(at) == Some(&"#") {
                at = group_end(tokens, at + 1);
            }
            at = item_end(tokens, at);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// Returns the index after the item that starts at an index: after its braces or its semicolon.
fn item_end(tokens: &[&str], mut at: usize) -> usize {
    while at < tokens.len() && !["}", ")", "]"].contains(&tokens[at]) {
        match tokens[at] {
            ";" | "," => return at + 1,
            "{" => return group_end(tokens, at),
            "(" | "[" => at = group_end(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Returns the index after the bracket that closes the one at an index.
fn group_end(tokens: &[&str], start: usize) -> usize {
    let mut depth = 0;
    let closes = |token: &&str| {
        depth += i32::from("{([".contains(*token)) - i32::from("})]".contains(*token));
        depth == 0
    };
    start + tokens[start..].iter().position(closes).expect("brackets match") + 1
}

/// Splits source text into words, `::` and other characters. Comments and literals are left out.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let length = if let Some(length) = skipped_length(rest) {
            rest = &rest[length..];
            continue;
        } else if word > 0 {
            word
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of a comment or a literal at the start of a text.
fn skipped_length(text: &str) -> Option<usize> {
    let until = |start: usize, end: &str| text[start..].find(end).map(|at| start + at + end.len());
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return until(2, "*/");
    }
    let raw = text.strip_prefix('b').unwrap_or(text).strip_prefix('r');
    if let Some(hashes) =
        raw.and_then(|raw| raw.split_once('"')).map(|(hashes, _)| hashes).filter(|h| h.bytes().all(|b| b == b'#'))
    {
        let open = text.find('"').expect("a raw string opens") + 1;
        return until(open, &format!("\"{hashes}"));
    }
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let mut characters = text.char_indices().skip(1);
    if quote == '\'' && !text[1..].starts_with('\\') && text.chars().nth(2) != Some('\'') {
        // A lifetime.
        return None;
    }
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            _ if character == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn module_path(mut path: ModulePath) -> ModulePath {
    if path.last().is_some_and(|name| name == "mod" || name == "lib") {
        path.pop();
    }
    path
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(dir).expect("package has sources").map(|entry| entry.expect("readable directory").path());
    let mut paths: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths
}

fn is_word(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

#[test]
fn comments_and_literals_are_not_code() {
    let text = r##"a /* struct B */ "x \" {" 'b' '\'' '{' r#"str"uct"# b"d" <'e> // f"##;
    assert_eq!(tokens(text), ["a", "b", "<", "'", "e", ">"]);
    assert_eq!(tokens("use super::{a, b};"), ["use", "super", "::", "{", "a", ",", "b", "}", ";"]);
}

#[test]
fn modules_are_parsed_without_their_tests() {
    let module = Module::parse(
        "use super::a::{self, B as C, d::*}; mod e; #[cfg(test)] mod tests; #[cfg(test)] mod f { struct G; }
        pub(crate) struct H { i: crate::j::K } impl L for H { type M = u8; } type N = H; fn o() { enum P {} }",
    );
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<ModulePath>();
    let imports = [("super::a", "a"), ("super::a::B", "C"), ("super::a::d::*", "*")];
    let expected = Module {
        file: String::new(),
        items: ["H", "N", "P", "o"].map(str::to_owned).into(),
        types: ["H", "N", "P"].map(str::to_owned).into(),
        children: ["e".to_owned()].into(),
        imports: imports.map(|(import, name)| (path(import), name.to_owned())).into(),
        re_exports: BTreeSet::new(),
        paths: vec![path("crate::j::K")],
    };
    assert_eq!(module, expected);
}

#[test]
fn circles_pass_re_exports() {
    let package = package(&[
        ("", "mod a; mod b; mod main;"),
        ("a", "pub use c::C; mod c; mod d;"),
        ("a/c", "use super::d::D; pub struct C;"),
        ("a/d", "use crate::b::B; use super::C as Other; pub struct D;"),
        ("b", "mod e; pub use e::*;"),
        ("b/e", "pub struct B; type C = super::super::a::C;"),
        ("main", "use crate::b::B;"),
    ]);
    let expected = ["a/c -> a/d", "a/d -> a/c", "a/d -> b/e", "b/e -> a/c"].map(str::to_owned);
    assert_eq!(package.circular_references(), expected.into());
    assert_eq!(package.duplicate_types(), ["C".to_owned()].into());
}

#[test]
fn circles_through_a_parent_count_if_they_leave_it() {
    let with_shared = |shared: &str| {
        package(&[
            ("", "mod cache; mod shared;"),
            ("cache", "mod recorder; pub struct Cache(recorder::Recorder);"),
            ("cache/recorder", "use super::Cache; use crate::shared::Shared; pub struct Recorder;"),
            ("shared", shared),
        ])
    };
    assert!(with_shared("pub struct Shared;").circular_references().is_empty());
    let expected = ["cache/recorder -> shared", "shared -> cache"].map(str::to_owned);
    let circular = with_shared("use crate::cache::Cache; pub struct Shared;").circular_references();
    assert_eq!(circular, expected.into());
}

#[test]
fn re_exports_of_modules_inside_are_no_references() {
    let with_parent = |parent: &str| {
        package(&[
            ("", "mod a; mod b;"),
            ("a", parent),
            ("a/c", "use crate::b::B; pub struct C;"),
            ("b", "use super::a::A; pub struct B;"),
        ])
    };
    for parent in ["mod c; pub use c::C;", "mod c; pub(super) use c::*;", "mod c;"] {
        assert!(with_parent(&format!("{parent} pub struct A;")).circular_references().is_empty(), "{parent}");
    }
    for parent in ["mod c; pub(super) use c::C; fn d(_: C) {}", "mod c; use c::C;", "fn d(_: c::C) {} mod c;"] {
        assert_eq!(with_parent(&format!("{parent} pub struct A;")).circular_references().len(), 2, "{parent}");
    }
}

#[test]
fn modules_for_tests_are_left_out() {
    let package = package(&[
        ("", "#[cfg(test)] mod tests; mod a;"),
        ("a", "struct A;"),
        ("tests", "struct A;"),
        ("tests/b", "struct A;"),
    ]);
    assert!(package.duplicate_types().is_empty());
}

fn package(modules: &[(&str, &str)]) -> Package {
    let path = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<ModulePath>();
    let module = |(name, text): &(&str, &str)| (path(name), Module { file: name.to_string(), ..Module::parse(text) });
    Package::from_modules(modules.iter().map(module).collect())
}
