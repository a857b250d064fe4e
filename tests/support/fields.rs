//! Structured fields (RFC 9651), parsed strictly: lists of items with parameters.

/// A bare item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bare {
    Integer(i64),
    Decimal(f64),
    Text(String),
    Token(String),
    Bytes(String),
    Boolean(bool),
}

/// A member of a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) bare: Bare,
    pub(crate) parameters: Vec<(String, Bare)>,
}

impl Item {
    pub(crate) fn get(&self, name: &str) -> Option<&Bare> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// An integer parameter that must be there.
    #[track_caller]
    pub(crate) fn integer(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(Bare::Integer(value)) => *value,
            other => panic!("{name} should be an integer, is {other:?} in {self:?}"),
        }
    }

    /// The name of a policy: its bare item, a string.
    #[track_caller]
    pub(crate) fn name(&self) -> &str {
        match &self.bare {
            Bare::Text(text) => text,
            other => panic!("a policy is named by a string, not {other:?}"),
        }
    }
}

/// Parses a whole field; several lines of one field are joined by a comma first.
#[track_caller]
pub(crate) fn list(lines: &[&str]) -> Vec<Item> {
    let text = lines.join(", ");
    let mut input = Input { rest: &text };
    let parsed = input.list();
    parsed.unwrap_or_else(|fault| panic!("{fault} at {:?} of {text:?}", input.rest))
}

struct Input<'a> {
    rest: &'a str,
}

type Parsed<T> = Result<T, &'static str>;

impl Input<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Parsed<char> {
        let next = self.peek().ok_or("the end")?;
        self.rest = &self.rest[next.len_utf8()..];
        Ok(next)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        there
    }

    fn run(&mut self, of: impl Fn(char) -> bool) -> String {
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (run, rest) = self.rest.split_at(end);
        self.rest = rest;
        run.to_owned()
    }

    fn list(&mut self) -> Parsed<Vec<Item>> {
        let mut members = Vec::new();
        self.run(|c| c == ' ');
        while !self.rest.is_empty() {
            members.push(self.item()?);
            self.run(|c| c == ' ' || c == '\t');
            if self.rest.is_empty() {
                break;
            }
            if !self.eat(',') {
                return Err("no comma between members");
            }
            self.run(|c| c == ' ' || c == '\t');
            if self.rest.is_empty() {
                return Err("a trailing comma");
            }
        }
        Ok(members)
    }

    fn item(&mut self) -> Parsed<Item> {
        let bare = self.bare()?;
        let mut parameters = Vec::new();
        while self.eat(';') {
            self.run(|c| c == ' ');
            if !self.peek().is_some_and(|c| c.is_ascii_lowercase() || c == '*') {
                return Err("a bad key");
            }
            let lower =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
            let key = self.run(lower);
            let value = if self.eat('=') { self.bare()? } else { Bare::Boolean(true) };
            parameters.push((key, value));
        }
        Ok(Item { bare, parameters })
    }

    fn bare(&mut self) -> Parsed<Bare> {
        match self.peek().ok_or("the end")? {
            '"' => self.text(),
            ':' => {
                self.next()?;
                let bytes = self.run(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
                if self.eat(':') { Ok(Bare::Bytes(bytes)) } else { Err("an open byte sequence") }
            }
            '?' => {
                self.next()?;
                match self.next()? {
                    '0' => Ok(Bare::Boolean(false)),
                    '1' => Ok(Bare::Boolean(true)),
                    _ => Err("a bad boolean"),
                }
            }
            c if c == '-' || c.is_ascii_digit() => self.number(),
            c if c.is_ascii_alphabetic() || c == '*' => {
                let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
                Ok(Bare::Token(self.run(token)))
            }
            _ => Err("no item"),
        }
    }

    fn text(&mut self) -> Parsed<Bare> {
        self.next()?;
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Ok(Bare::Text(text)),
                '\\' => match self.next()? {
                    c @ ('"' | '\\') => text.push(c),
                    _ => return Err("a bad escape"),
                },
                c @ ' '..='~' => text.push(c),
                _ => return Err("a bad character in a string"),
            }
        }
    }

    fn number(&mut self) -> Parsed<Bare> {
        let sign = if self.eat('-') { "-" } else { "" };
        let whole = self.run(|c| c.is_ascii_digit());
        if whole.is_empty() || whole.len() > 15 {
            return Err("a bad number");
        }
        if !self.eat('.') {
            return format!("{sign}{whole}")
                .parse()
                .map(Bare::Integer)
                .map_err(|_| "a bad integer");
        }
        let part = self.run(|c| c.is_ascii_digit());
        if whole.len() > 12 || part.is_empty() || part.len() > 3 {
            return Err("a bad decimal");
        }
        format!("{sign}{whole}.{part}").parse().map(Bare::Decimal).map_err(|_| "a bad decimal")
    }
}
