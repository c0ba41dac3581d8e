//! A strict parser of structured fields (RFC 9651) for `RateLimit` and `RateLimit-Policy`: a list of strings with
//! integer parameters. All other syntax is an error.

/// A member of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    pub parameters: Vec<(String, u64)>,
}

impl Item {
    /// Returns the value of a parameter. Panics if it is missing.
    pub fn parameter(&self, key: &str) -> u64 {
        let parameter = self.parameters.iter().find(|(name, _)| name == key);
        parameter.unwrap_or_else(|| panic!("no {key} in {self:?}")).1
    }

    /// Returns true if the item has exactly the parameters `keys`.
    pub fn has_only(&self, keys: &[&str]) -> bool {
        self.parameters.len() == keys.len()
            && keys.iter().all(|key| self.parameters.iter().any(|(name, _)| name == key))
    }
}

/// Parses a list with at least one item.
pub fn parse_list(text: &str) -> Vec<Item> {
    let mut reader = FieldReader { text, rest: text.as_bytes() };
    let mut items = vec![reader.item()];
    loop {
        reader.skip(b" \t");
        if reader.rest.is_empty() {
            return items;
        }
        reader.expect(b',');
        reader.skip(b" \t");
        items.push(reader.item());
    }
}

struct FieldReader<'a> {
    text: &'a str,
    rest: &'a [u8],
}

impl FieldReader<'_> {
    fn item(&mut self) -> Item {
        let name = self.string();
        let mut parameters = Vec::new();
        while self.rest.first() == Some(&b';') {
            self.expect(b';');
            self.skip(b" ");
            let key = self.key();
            self.expect(b'=');
            let number = self.integer();
            assert!(parameters.iter().all(|(other, _)| *other != key), "{key} twice in {:?}", self.text);
            parameters.push((key, number));
        }
        Item { name, parameters }
    }

    fn string(&mut self) -> String {
        self.expect(b'"');
        let mut string = String::new();
        loop {
            match self.next() {
                b'"' => return string,
                b'\\' => match self.next() {
                    escaped @ (b'"' | b'\\') => string.push(char::from(escaped)),
                    other => panic!("\\{} in {:?}", char::from(other), self.text),
                },
                byte @ 0x20..=0x7e => string.push(char::from(byte)),
                other => panic!("byte {other} in {:?}", self.text),
            }
        }
    }

    fn key(&mut self) -> String {
        let key = self.take_while_in(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
        assert!(
            key.starts_with(|first: char| first.is_ascii_lowercase() || first == '*'),
            "{key:?} in {:?}",
            self.text
        );
        key
    }

    fn integer(&mut self) -> u64 {
        let digits = self.take_while_in(|byte| byte.is_ascii_digit());
        assert!((1..=15).contains(&digits.len()), "{digits:?} in {:?}", self.text);
        digits.parse().expect("fifteen digits fit")
    }

    fn take_while_in(&mut self, predicate: impl Fn(u8) -> bool) -> String {
        let length = self.rest.iter().take_while(|byte| predicate(**byte)).count();
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        String::from_utf8_lossy(taken).into_owned()
    }

    fn skip(&mut self, blanks: &[u8]) {
        self.take_while_in(|byte| blanks.contains(&byte));
    }

    fn expect(&mut self, byte: u8) {
        assert_eq!(char::from(self.next()), char::from(byte), "in {:?}", self.text);
    }

    fn next(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or_else(|| panic!("unexpected end of {:?}", self.text));
        self.rest = rest;
        *first
    }
}
