"""Measure the structure of the code; print a table.

usage: scripts/measure structure [--list] [--rebuild] [--check] [REVISION]

Measures the working tree, or REVISION in a temporary copy. --list also prints what was counted. --rebuild builds all
tests, touches policy/tier.rs and measures the next build of all tests. --check prints, in place of the table, what differs
from its bound in BOUNDS, and exits with status 1 if anything does: a measure above its bound, with all that was counted,
and a bound above its measure, so that the change that improves a measure lowers its bound. Uses git (for REVISION), cargo
(for --rebuild) and the standard library only.

Packages are the root and the directories of crates/. Of the Rust code in their src/, without tests:
- Lines: with comments and blank lines, and without.
- Type names used twice: names of struct, enum, union, trait and type that one package declares more than once.
- Files in cycles: files that reach themselves by `use` declarations and by paths that start with crate, self or super. A
  re-exported item counts for the file that declares it. References between a module and modules inside it do not count.
- Pairs of structs: two structs of any packages that share the names of at least 4 fields, and of 60 % of the fields of
  the smaller one.

The request path is the code in REQUEST_PATH; its entry is the function `handle` in a mod.rs. Of the types of all packages:
- Types that a request passes: types that the request path declares, and types that its signatures, `impl` blocks and
  fields name, except those that outlive a request. These are what the entry takes by `&`, Rc or Arc, and all that the
  fields of these reach: state and settings, and values they hold, such as Units. Types that the path declares count always.
- Fields: of a struct, or of the largest variant of an enum.
- Methods: functions of a trait, and of `impl` blocks without a trait in all files of the packages.
- Types named in the request path: names in its code that any package declares as a type.
- Lines: with comments and blank lines. A file beside a directory of the same name counts for the directory.

Of the tests:
- Tests of the request path without a socket: neither they nor the functions of their file that they call name a type of
  socket, `bind` or `connect`.
- Test binaries of the command `cargo test`, without benchmarks.
- Silent skips: tests that succeed without testing, because a requirement is missing: a test with a
  `let .. else { return }` or `if .. { return }` in its outer block that does not report the skip, and prints of "skipped".
"""
import collections
import io
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib

from .server import ROOT

MAX_FIELDS, MAX_METHODS = 12, 15
TYPES_OF_REQUEST = "types that a request passes"
LARGE_BY_FIELDS = f"types of a request with more than {MAX_FIELDS} fields"
LARGE_BY_METHODS = f"types of a request with more than {MAX_METHODS} methods"
# The largest value of a measure. Bounds only fall: --check asks to lower one above its measure.
BOUNDS = {
    "type names used twice or more within a package": 11,
    "files in cycles within a package": 0,
    TYPES_OF_REQUEST: 101,
    LARGE_BY_FIELDS: 0,
    LARGE_BY_METHODS: 0,
    "integration test binaries": 1,
    "tests that skip silently": 0,
}
REQUEST_PATH = re.compile(r"src/gateway/(?:exchange|handler|request_context|visit)\b")
NO_ENTRY = "no mod.rs of the request path has a function `handle` that takes a type by reference"

ITEM = re.compile(
    r"^( *)(?:pub(?:\([^)]*\))? +)?(?:(?:async|unsafe|const|default|auto) +)*"
    r"(struct|enum|union|trait|type|fn|const|static|mod|macro_rules!) +(\w+)",
    re.M,
)
TYPES = ("struct", "enum", "union", "trait", "type")
LITERALS = re.compile(r"""//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\(?:u\{\w+\}|x\w\w|.)|[^'\\\n])'""", re.S)
ATTRIBUTE = re.compile(r"#\[(?:[^][]|\[[^][]*\])*\]")
TYPE_PATH = r"(?:\w+::)*[A-Z]\w*"
SHARED = re.compile(rf"(?:&\s*(?:'\w+\s+)?(?:mut\s+)?|\b(?:Rc|Arc)<\s*)+({TYPE_PATH})")
SOCKET = r"\b(?:Tcp|Udp|Unix)(?:Listener|Socket|Stream|Datagram)\b|\b(?:bind|connect)\("
TEST_ITEM = re.compile(r"#\[cfg\((?:test\b|any\(test\b|all\(test\b)[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*")


def add_arguments(parser):
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rebuild", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("revision", nargs="?")


def run(arguments):
    with tempfile.TemporaryDirectory() as copy:
        root = ROOT
        if arguments.revision:
            root = pathlib.Path(copy)
            archive = subprocess.run(["git", "archive", arguments.revision], cwd=ROOT, check=True, capture_output=True)
            tarfile.open(fileobj=io.BytesIO(archive.stdout)).extractall(root, filter="data")
        rows = measure(root)
        if arguments.rebuild:
            rows.append(("seconds to rebuild all tests after a change of policy/tier.rs", rebuild(root)))
    if arguments.check:
        return check(dict(rows))
    print("| measure | value |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {len(value) if isinstance(value, list) else value} |")
    for name, value in rows:
        if arguments.list and isinstance(value, list):
            print(f"\n{name}:\n  " + "\n  ".join(value))


def check(rows):
    """Prints the measures that differ from their bounds. Returns the exit status."""
    failures = []
    for name, bound in BOUNDS.items():
        counted = rows.get(name)
        if counted is None:
            failures.append(f"{name}: not measured, because {NO_ENTRY}")
        elif len(counted) > bound:
            failures.append(f"{name}: {len(counted)}, bound {bound}. Counted:\n  " + "\n  ".join(counted))
        elif len(counted) < bound:
            failures.append(f"bound of {name} is {bound}, measured {len(counted)}: lower it in scripts/measuring/structure.py")
    print("".join(f"{failure}\n" for failure in failures), end="", file=sys.stderr)
    return 1 if failures else 0


def measure(root):
    workspace = Workspace(root)
    packages, files = workspace.packages.values(), [file for _, file in workspace.files()]
    lines = [line.strip() for file in files for line in file.text.splitlines()]
    tests = [test for package in packages for test in package.tests()]
    return [
        ("packages", len(packages)),
        ("lines of Rust without tests", len(lines)),
        ("of these, neither comments nor blank", sum(1 for line in lines if line and not line.startswith("//"))),
        ("type names used twice or more within a package", [name for package in packages for name in package.duplicates()]),
        ("files in cycles within a package", workspace.cycles()),
        ("pairs of structs that share most of their fields", similar_structs(files)),
        ("files of src/gateway at one level", sorted(str(path.relative_to(root)) for path in root.glob("src/gateway/*.rs"))),
        *request_types(workspace),
        *request_path(files),
        ("tests of the request path without a socket", tests_without_socket(root)),
        ("integration test binaries", [test for test in tests if "tests/" in test]),
        ("all test binaries", tests),
        ("tests that skip silently", silent_skips(root)),
    ]


def request_types(workspace):
    types = sorted(workspace.request_types(), key=lambda type: (type.file, type.name))
    if not types:
        return [(f"types of a request, not measured: {NO_ENTRY}", "-")]
    methods = workspace.methods()
    by_fields = sorted(types, key=lambda type: -type.field_count)
    by_methods = sorted(types, key=lambda type: -methods[type])
    fields_of = lambda type: f"{type.name}: {type.field_count} fields, {type.file}"
    methods_of = lambda type: f"{type.name}: {methods[type]} methods, {type.file}"
    return [
        (TYPES_OF_REQUEST, [f"{type.name}: {type.file}" for type in types]),
        (LARGE_BY_FIELDS, [fields_of(type) for type in by_fields if type.field_count > MAX_FIELDS]),
        (LARGE_BY_METHODS, [methods_of(type) for type in by_methods if methods[type] > MAX_METHODS]),
        ("most fields of a type of a request", f"{by_fields[0].field_count} ({by_fields[0].name})"),
        ("most methods of a type of a request", f"{methods[by_methods[0]]} ({by_methods[0].name})"),
    ]


def request_path(files):
    declared = {type.name for file in files for type in file.types}
    files = [file for file in files if REQUEST_PATH.search(file.name)]
    named = {word for file in files for word in re.findall(r"\b[A-Z]\w+", file.code)}
    lines = collections.Counter()
    for file in files:
        # The file of a module belongs to the directory of its submodules.
        directory = REQUEST_PATH.match(file.name)[0] if file.name.count("/") == 2 else file.name.rpartition("/")[0]
        lines[directory] += len(file.text.splitlines())
    return [
        ("types named in the request path", sorted(named & declared)),
        ("lines of the request path", lines.total()),
        *((f"of these, in {directory}", count) for directory, count in sorted(lines.items())),
    ]


def similar_structs(files):
    structs = [type for file in files for type in file.types if type.kind == "struct"]
    found = []
    for one, other in itertools.combinations(structs, 2):
        shared = len(one.field_names & other.field_names)
        if shared >= 4 and shared >= 0.6 * min(one.field_count, other.field_count):
            sizes = f"{shared} of {one.field_count} and {other.field_count}"
            found.append(f"{one.name}, {other.name}: {sizes}, {one.file}, {other.file}")
    return found


class File:
    """Source of one module without its tests."""

    def __init__(self, root, path, text):
        self.name = str(path.relative_to(root))
        blank = blanked(text)
        for start, end in test_items(blank):
            blank = blank[:start] + re.sub(r"\S", " ", blank[start:end]) + blank[end:]
            text = text[:start] + re.sub(r"\S", "\0", text[start:end]) + text[end:]
        self.text = "\n".join(line for line in text.splitlines() if "\0" not in line)
        self.code = blank
        self.items = {name for indent, kind, name in ITEM.findall(blank) if not indent and kind != "mod"}
        # An indented `type` is an associated type.
        self.types = [
            Type(self.name, item[2], item[3], blank, item.end())
            for item in ITEM.finditer(blank)
            if item[2] in TYPES and (item[2] != "type" or not item[1])
        ]
        uses = list(re.finditer(r"\buse\s+([^;]+);", blank))
        self.imports = [leaf for use in uses for leaf in use_leaves(re.sub(r"\s+", " ", use[1]))]
        self.paths = [re.split(r"\s*::\s*", path[0]) for path in re.finditer(r"\b(?:crate|self|super)(?:::\w+)+", blank)]

    def impls(self):
        """Returns the trait, the type, and the ends of the braces of each `impl` block; an empty trait if there is none."""
        found = []
        for match in re.finditer(r"^ *(?:unsafe )?impl\b", self.code, re.M):
            start = after_generics(self.code, match.end())
            opening = self.code.index("{", start)
            trait, _, target = re.split(r"\bwhere\b", self.code[start:opening])[0].rpartition(" for ")
            found.append((trait.strip(), target.strip(), opening, matching(self.code, opening)))
        return found

    def functions(self):
        """Returns the name and the signature of each function, with the names of `self` and `Self` in words."""
        found, impls = [], self.impls()
        for match in re.finditer(r"\bfn (\w+)", self.code):
            start = after_generics(self.code, match.end())
            end = re.compile("[^{;]*").match(self.code, matching(self.code, start)).end()
            owner = next((target for _, target, opening, close in impls if opening < match.start() < close), "")
            signature = re.sub(r"(&(?:'\w+ )?(?:mut )?)self\b", r"\1Self", self.code[match.end() : end])
            found.append((match[1], re.sub(r"\bSelf\b", lambda _: owner, signature)))
        return found


class Type:
    """A type, by the text of its declaration."""

    def __init__(self, file, kind, name, code, at):
        self.file, self.kind, self.name = file, kind, name
        groups = field_groups(kind, code, after_generics(code, at))
        self.field_count = max(map(len, groups), default=0)
        self.field_names = {match[1] for group in groups for field in group if (match := re.match(r"(\w+)\s*:(?!:)", field))}
        self.text = " ".join(field for group in groups for field in group)
        if kind == "type":
            self.text = code[at : code.index(";", at)]
        self.method_count = 0
        if kind == "trait":
            opening = code.index("{", at)
            self.method_count = functions_in(code[opening + 1 : matching(code, opening)])


class Workspace:
    """All packages, and the types that they declare at the top level of a file."""

    def __init__(self, root):
        self.packages = {}
        for manifest in [root / "Cargo.toml", *sorted(root.glob("crates/*/Cargo.toml"))]:
            package = Package(root, manifest.parent)
            self.packages[package.manifest["package"]["name"].replace("-", "_")] = package
        self.types = {}
        for place, file in self.files():
            self.types |= {(*place, type.name): type for type in file.types if type.name in file.items}

    def files(self):
        """Returns the place of each file (package and module), and the file."""
        return [((name, module), file) for name, package in self.packages.items() for module, file in package.files.items()]

    def cycles(self):
        references = {place: set() for place, _ in self.files()}
        for (package, module), file in self.files():
            for path in [path for path, _ in file.imports] + file.paths:
                item = self.resolve(package, module, path)
                if item and item[0] == package and not contains(item[1], module) and not contains(module, item[1]):
                    references[package, module].add(item[:2])
        names = {place: file.name for place, file in self.files()}
        groups = sorted((group for group in components(references) if len(group) > 1), key=len, reverse=True)
        return [f"{names[place]} (of {len(group)})" for group in groups for place in sorted(group)]

    def resolve(self, package, module, path, visited=frozenset()):
        """Returns package, module and name of the item of a path, without a name for a module; None for unknown ones."""
        if (package, module, tuple(path)) in visited:
            return None
        visited |= {(package, module, tuple(path))}
        if not path:
            return package, module, None
        head, *rest = path
        if head in ("crate", "self", "super"):
            base = {"crate": (), "self": module, "super": module[:-1]}[head]
            return self.resolve(package, base, rest, visited)
        files = self.packages[package].files
        if module + (head,) in files:
            return self.resolve(package, module + (head,), rest, visited)
        if module in files and (head in files[module].items or head == "*"):
            return package, module, head
        for imported, name in files[module].imports if module in files else []:
            known = imported[0] in ("crate", "self", "super", *self.packages) or module + (imported[0],) in files
            if known and name in (head, "*"):
                target = imported + rest if name == head else imported[:-1] + path
                if item := self.resolve(package, module, target, visited):
                    return item
        return self.resolve(head, (), rest, visited) if head in self.packages else None

    def named(self, place, text):
        """Returns the types that a text in a file names."""
        paths = [re.split("::(?=[A-Z])", path)[0].split("::") for path in re.findall(rf"\b{TYPE_PATH}", text)]
        return {self.types[item] for path in paths if (item := self.resolve(*place, path)) in self.types}

    def methods(self):
        """Returns the number of methods by type."""
        counts = collections.Counter({type: type.method_count for type in self.types.values()})
        for place, file in self.files():
            for trait, target, opening, end in file.impls():
                name = re.match(TYPE_PATH, target)
                for type in self.named(place, name[0]) if name and not trait else ():
                    counts[type] += functions_in(file.code[opening + 1 : end])
        return counts

    def request_types(self):
        """Returns the types that a request passes; none without an entry."""
        path = [(place, file) for place, file in self.files() if REQUEST_PATH.search(file.name)]
        declared = {type for _, file in path for type in file.types}
        found = set(declared)
        for place, file in path:
            signatures = [signature for _, signature in file.functions()]
            targets = [target for _, target, _, _ in file.impls()]
            for text in [*signatures, *targets, *(type.text for type in file.types)]:
                found |= self.named(place, text)
        outliving = self.outliving(path)
        return found - (outliving - declared) if outliving else set()

    def outliving(self, path):
        """Returns the types that outlive a request: what its entry takes by reference, and what the fields of that reach."""
        reached = set()
        for place, file in path:
            for name, signature in file.functions() if file.name.endswith("/mod.rs") else ():
                if name == "handle":
                    reached |= self.named(place, " ".join(SHARED.findall(signature)))
        places, stack = {type: item[:2] for item, type in self.types.items()}, list(reached)
        while stack:
            type = stack.pop()
            new = self.named(places[type], type.text) - reached
            reached |= new
            stack += new
        return reached


class Package:
    def __init__(self, root, directory):
        self.directory = directory
        self.root = root
        self.manifest = tomllib.loads((directory / "Cargo.toml").read_text())
        self.files = {}
        for path in sorted((directory / "src").rglob("*.rs")):
            module = path.relative_to(directory / "src").with_suffix("").parts
            module = module[:-1] if module[-1] in ("mod", "lib") else module
            self.files[module] = File(root, path, path.read_text())
        for module in [module for module in self.files if self.is_test(module)]:
            del self.files[module]

    def is_test(self, module):
        """True for a module that an ancestor declares for tests only."""
        for depth in range(len(module)):
            parent = self.files.get(module[:depth])
            if parent is not None and not re.search(rf"\bmod {module[depth]}\b", parent.code) and module != ("main",):
                return True
            if parent is None and module[:depth] and module[depth - 1] == "tests":
                return True
        return False

    def duplicates(self):
        places = collections.defaultdict(list)
        for file in self.files.values():
            for type in file.types:
                places[type.name].append(file.name)
        return [f"{name}: {', '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]

    def tests(self):
        """Returns the test binaries."""
        name = str(self.directory.relative_to(self.root))
        targets = [target for target in ("src/lib.rs", "src/main.rs") if (self.directory / target).is_file()]
        if self.manifest.get("lib", {}).get("test", True) is False:
            targets.remove("src/lib.rs")
        if any(target.get("test", True) is False for target in self.manifest.get("bin", [])):
            targets = [target for target in targets if target != "src/main.rs"]
        for pattern in ("src/bin/*.rs", "tests/*.rs", "tests/*/main.rs"):
            targets += sorted(str(path.relative_to(self.directory)) for path in self.directory.glob(pattern))
        return [f"{name}/{target}" for target in targets]


def blanked(text):
    """Returns the text with comments and literals replaced by spaces."""
    return LITERALS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def test_items(code):
    """Returns start and end of the items for tests."""
    found, end = [], 0
    for match in TEST_ITEM.finditer(code):
        if match.start() >= end:
            end = item_end(code, match.end())
            found.append((match.start(), end))
    return found


def item_end(code, at):
    depth = 0
    for at in range(at, len(code)):
        depth += (code[at] in "{([") - (code[at] in "})]")
        if depth < 0 or depth == 0 and code[at] in ";,}":
            break
    return at + 1


def use_leaves(tree, prefix=()):
    """Returns the path and the local name of each import of a use tree."""
    tree = tree.strip()
    if tree.endswith("}"):
        head, group = tree.split("{", 1)
        prefix = [*prefix, *(part.strip() for part in head.split("::") if part.strip())]
        return [leaf for part in parts(group[:-1]) for leaf in use_leaves(part, prefix)]
    path, _, alias = tree.partition(" as ")
    path = [*prefix, *(part.strip() for part in path.split("::"))]
    if path[-1] == "self" and len(path) > 1:
        path = path[:-1]
    return [(path, alias.strip() or path[-1])]


def parts(text):
    """Returns what commas outside of brackets separate."""
    found, depth, start = [], 0, 0
    for match in re.finditer(r"[{(\[<]|[})\]]|(?<![-=])>|,", text):
        if match[0] != ",":
            depth += 1 if match[0] in "{([<" else -1
        elif depth == 0:
            found.append(text[start : match.start()])
            start = match.end()
    return [part.strip() for part in [*found, text[start:]] if part.strip()]


def field_groups(kind, code, at):
    """Returns the fields of a struct, or of each variant of an enum, as written without attributes and visibility."""
    opening = re.compile(r"\s*\(|[^{;]*[{;]").match(code, at).end() - 1
    if kind in ("trait", "type") or code[opening] == ";":
        return []
    body = ATTRIBUTE.sub("", code[opening + 1 : matching(code, opening)])
    bodies = [re.sub(r"^\w+\s*(?:=.*|[{(])?|[})]$", "", variant) for variant in parts(body)] if kind == "enum" else [body]
    return [[re.sub(r"^pub(?:\([^)]*\))?\s+", "", field) for field in parts(body)] for body in bodies]


def functions_in(block):
    """Returns the number of functions outside of braces."""
    depth = count = 0
    for match in re.finditer(r"[{}]|\bfn \w", block):
        depth += (match[0] == "{") - (match[0] == "}")
        count += depth == 0 and match[0] not in "{}"
    return count


def contains(outer, inner):
    return inner[: len(outer)] == outer


def components(references):
    """Returns the strongly connected components."""
    reach = {}
    for start in references:
        seen, stack = set(), [start]
        while stack:
            for target in references[stack.pop()]:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        reach[start] = seen
    return {frozenset({start} | {other for other in reach[start] if start in reach[other]}) for start in references}


def tests_without_socket(root):
    found = []
    for path in sorted(root.glob("src/gateway/**/*.rs")):
        name, code = str(path.relative_to(root)), blanked(path.read_text())
        opening = "|".join([SOCKET, *(rf"\b{function}\(" for function in callers(code, SOCKET))])
        if REQUEST_PATH.search(name):
            found += [f"{name}: {test}" for test, body in test_functions(code) if not re.search(opening, body)]
    return found


def silent_skips(root):
    found = []
    for path in sorted([*root.glob("tests/**/*.rs"), *root.glob("src/**/*.rs"), *root.glob("crates/**/*.rs")]):
        name, text = str(path.relative_to(root)), path.read_text()
        code = blanked(text)
        reporting = ["shared_data", "report_skip", *callers(code, r"\b(?:shared_data|report_skip)\(")]
        found += [f"{name}: prints \"skipped\"" for _ in re.finditer(r'print(?:ln)?!\(\s*"[^"]*\bskip', text)]
        for test, body in test_functions(code):
            for skip in re.finditer(r"\n {4}(?: {4})?(?:let [^;]*? else|if [^;{]*)\s*\{\s*return;?\s*\}", body):
                if not re.search(rf"\b(?:{'|'.join(reporting)})\(", skip[0]):
                    found.append(f"{name}: {test}")
    return found


def test_functions(code):
    """Returns the name and the body of each test."""
    tests = re.finditer(r"#\[(?:tokio::)?test\b[^\n]*\n(?:\s*#[^\n]*\n)*\s*(?:async )?fn (\w+)", code)
    openings = [(test[1], code.index("{", test.end())) for test in tests]
    return [(name, code[opening : matching(code, opening)]) for name, opening in openings]


def callers(code, pattern):
    """Returns the functions of a file whose body has a match."""
    functions = re.finditer(r"\bfn (\w+)[^;{]*\{", code)
    return [match[1] for match in functions if re.search(pattern, code[match.end() : matching(code, match.end() - 1)])]


def matching(code, at):
    """Returns the position of the bracket that closes the one at a position."""
    depth = 0
    for match in re.compile(r"[{(\[]|[})\]]").finditer(code, at):
        depth += 1 if match[0] in "{([" else -1
        if depth == 0:
            return match.start()
    return len(code)


def after_generics(code, at):
    """Returns the position after the generic parameters at a position, if there are any."""
    depth = 0
    for match in re.compile(r"<|(?<![-=])>").finditer(code, at) if code[at] == "<" else ():
        depth += 1 if match[0] == "<" else -1
        if depth == 0:
            return match.end()
    return at


def rebuild(root):
    """Returns how long a build of all tests takes after a change of policy/tier.rs, in seconds."""
    files = [path for path in (root / "crates/policy/src/tier.rs", root / "src/policy/tier.rs") if path.is_file()]
    build = lambda: subprocess.run(["cargo", "test", "--workspace", "--no-run", "--quiet"], cwd=root, check=True)
    build()
    os.utime(files[0])
    start = time.monotonic()
    build()
    return round(time.monotonic() - start, 1)
