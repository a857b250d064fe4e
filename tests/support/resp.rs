//! Redis's own protocol, as far as the tests speak it: a command out, a reply in.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Integer(i64),
    Text(String),
    Error(String),
    List(Vec<Reply>),
}

impl Reply {
    /// Its text, whatever its type.
    pub(crate) fn text(&self) -> String {
        match self {
            Reply::Nil => String::new(),
            Reply::Integer(number) => number.to_string(),
            Reply::Text(text) | Reply::Error(text) => text.clone(),
            Reply::List(members) => members.iter().map(Reply::text).collect::<Vec<_>>().join("\n"),
        }
    }

    #[track_caller]
    pub(crate) fn integer(&self) -> i64 {
        self.text().parse().unwrap_or_else(|_| panic!("{self:?} is no number"))
    }

    #[track_caller]
    pub(crate) fn list(&self) -> &[Reply] {
        match self {
            Reply::List(members) => members,
            other => panic!("{other:?} is no list"),
        }
    }

    /// Fails the test if the server refused the command.
    #[track_caller]
    pub(crate) fn ok(self) -> Reply {
        if let Reply::Error(error) = &self {
            panic!("redis refused: {error}");
        }
        self
    }
}

/// A connection through the server's Unix socket: it is there whatever the port speaks.
#[derive(Debug)]
pub(crate) struct Resp(BufReader<UnixStream>);

impl Resp {
    pub(crate) fn connect(socket: &Path, patience: Duration) -> io::Result<Resp> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Resp(BufReader::new(stream)))
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.reply()
    }

    pub(crate) fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(command.as_bytes())
    }

    /// The next line without its end; an error at the end of the connection.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.pop();
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" if rest == "-1" => Ok(Reply::Nil),
            "$" => {
                let mut text = vec![0; number()? as usize + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                Ok(Reply::Text(String::from_utf8_lossy(&text).into_owned()))
            }
            "*" if rest == "-1" => Ok(Reply::Nil),
            "*" => {
                let members = (0..number()?).map(|_| self.reply());
                Ok(Reply::List(members.collect::<io::Result<_>>()?))
            }
            _ => Err(io::Error::other(format!("no reply starts with {line:?}"))),
        }
    }
}
