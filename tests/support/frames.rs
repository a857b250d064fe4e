//! A client of HTTP/2 that sends exactly the frames it is given: enough of RFC 9113 and of HPACK to say
//! anything and to read statuses, and nothing that would stop it from saying what it should not.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Client;
use super::wire::{ReadError, Wire};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const CANCEL: u32 = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// What came of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: Option<u16>,
    pub(crate) body: Vec<u8>,
    pub(crate) ended: bool,
    /// The code of the reset, if there was one.
    pub(crate) reset: Option<u32>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct FrameClient {
    pub(crate) wire: Wire,
    next_stream: u32,
    outcomes: HashMap<u32, Outcome>,
    /// The codes of all GOAWAY frames, in order.
    pub(crate) farewells: Vec<u32>,
    /// Whether windows are opened again for what was received.
    pub(crate) reads: bool,
    /// Whether pings are acknowledged.
    pub(crate) acknowledges: bool,
}

impl FrameClient {
    /// Connects and says so, with no dynamic table for what comes back.
    pub(crate) fn connect(address: SocketAddr) -> FrameClient {
        FrameClient::with_settings(address, &[(1, 0)])
    }

    pub(crate) fn with_settings(address: SocketAddr, settings: &[(u16, u32)]) -> FrameClient {
        let mut client = FrameClient {
            wire: Client::connect(address).wire,
            next_stream: 1,
            outcomes: HashMap::new(),
            farewells: Vec::new(),
            reads: true,
            acknowledges: true,
        };
        let hello = [PREFACE, &frame(SETTINGS, 0, 0, &settings_payload(settings))].concat();
        client.wire.write(&hello);
        client
    }

    /// The id that the next stream gets.
    pub(crate) fn next_id(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.wire.write(&frame(kind, flags, stream, payload))
    }

    /// Opens a stream with a whole request that has no body.
    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.open(&block(&request("GET", path)), END_STREAM)
    }

    /// Opens a stream with this header block.
    pub(crate) fn open(&mut self, block: &[u8], flags: u8) -> u32 {
        let id = self.next_id();
        self.send(HEADERS, END_HEADERS | flags, id, block);
        id
    }

    pub(crate) fn reset(&mut self, stream: u32, code: u32) -> bool {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes())
    }

    /// The next frame. Settings and pings are acknowledged, and what ends streams is noted.
    pub(crate) fn next(&mut self) -> Result<Frame, ReadError> {
        let frame = read_frame(&mut self.wire)?;
        self.note(&frame);
        Ok(frame)
    }

    fn note(&mut self, frame: &Frame) {
        let number = |at: usize| {
            let bytes = frame.payload.get(at..at + 4).unwrap_or(&[0; 4]);
            u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                self.send(SETTINGS, ACK, 0, &[]);
            }
            PING if frame.flags & ACK == 0 && self.acknowledges => {
                self.send(PING, ACK, 0, &frame.payload);
            }
            GOAWAY => self.farewells.push(number(4)),
            _ => {}
        }
        if frame.stream == 0 {
            return;
        }
        let outcome = self.outcomes.entry(frame.stream).or_default();
        match frame.kind {
            HEADERS if outcome.status.is_none() => outcome.status = status(&frame.payload),
            DATA => outcome.body.extend_from_slice(&frame.payload),
            RST_STREAM => outcome.reset = Some(number(0)),
            _ => {}
        }
        outcome.ended |= matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0;
        if self.reads && frame.kind == DATA && !frame.payload.is_empty() {
            let more = (frame.payload.len() as u32).to_be_bytes();
            self.send(WINDOW_UPDATE, 0, 0, &more);
            self.send(WINDOW_UPDATE, 0, frame.stream, &more);
        }
    }

    /// What comes of a stream: reads until it has ended, was reset, or nothing comes any more.
    pub(crate) fn outcome(&mut self, stream: u32) -> Outcome {
        loop {
            let known = self.outcomes.get(&stream).cloned().unwrap_or_default();
            if known.ended || known.reset.is_some() || self.next().is_err() {
                return self.outcomes.get(&stream).cloned().unwrap_or_default();
            }
        }
    }

    /// What is known of a stream by now.
    pub(crate) fn known(&self, stream: u32) -> Outcome {
        self.outcomes.get(&stream).cloned().unwrap_or_default()
    }

    /// The status of the answer on a stream.
    #[track_caller]
    pub(crate) fn status(&mut self, stream: u32) -> u16 {
        let outcome = self.outcome(stream);
        outcome.status.unwrap_or_else(|| panic!("no answer: {outcome:?}, {:?}", self.farewells))
    }

    /// Whether the peer ends the connection, whatever it still sends before that.
    pub(crate) fn ends(&mut self) -> bool {
        loop {
            match self.next() {
                Ok(_) => {}
                Err(error) => return error == ReadError::Closed,
            }
        }
    }
}

/// The next frame of either side.
pub(crate) fn read_frame(wire: &mut Wire) -> Result<Frame, ReadError> {
    let head = wire.take(9)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let payload = wire.take(length)?;
    Ok(Frame { kind: head[3], flags: head[4], stream, payload })
}

/// A frame, ready to be sent.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// What a SETTINGS frame says.
pub(crate) fn settings_payload(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in settings {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    payload
}

/// The fields of a request to a host that means nothing.
pub(crate) fn request<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![(":method", method), (":scheme", "http"), (":authority", "weir.test"), (":path", path)]
}

/// A header block: every field a literal that is not indexed, as RFC 7541 section 6.2.2 has it.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

/// Adds one field, whatever is in it.
pub(crate) fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    string(block, name);
    string(block, value);
}

/// RFC 7541 section 5.2, without Huffman's code.
pub(crate) fn string(block: &mut Vec<u8>, text: &[u8]) {
    if text.len() < 127 {
        block.push(text.len() as u8);
    } else {
        block.push(127);
        let mut rest = text.len() - 127;
        while rest >= 128 {
            block.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(text);
}

/// The status that a header block begins with.
fn status(block: &[u8]) -> Option<u16> {
    let mut rest = block;
    // Changes of the size of the dynamic table.
    while let [0x20..=0x3f, behind @ ..] = rest {
        rest = behind;
    }
    match rest {
        [indexed @ 0x88..=0x8e, ..] => {
            Some([200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)])
        }
        // A literal whose name is that of an entry that is a status.
        [0x08..=0x0e | 0x18..=0x1e | 0x48..=0x4e, length, behind @ ..] => {
            let text = behind.get(..usize::from(length & 0x7f))?;
            let digits = if length & 0x80 == 0 { text.to_vec() } else { huffman_digits(text) };
            std::str::from_utf8(&digits).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// Digits in Huffman's code: 0, 1 and 2 have five bits, the others six.
fn huffman_digits(bytes: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let value = |bits: &[u8]| bits.iter().fold(0, |value, bit| value << 1 | bit);
    let (mut digits, mut at) = (Vec::new(), 0);
    while at + 5 <= bits.len() {
        let short = value(&bits[at..at + 5]);
        if short < 3 {
            digits.push(b'0' + short);
            at += 5;
        } else if at + 6 <= bits.len() && (0x19..=0x1f).contains(&value(&bits[at..at + 6])) {
            digits.push(b'3' + value(&bits[at..at + 6]) - 0x19);
            at += 6;
        } else {
            break;
        }
    }
    digits
}
