use super::*;

fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), ChunkError> {
    let (mut decoder, mut buffer, mut body) = (Chunked::default(), BytesMut::new(), Vec::new());
    let mut ended = false;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer)? {
                Step::Data(data) => body.extend_from_slice(&data),
                Step::More => break,
                Step::End => {
                    ended = true;
                    break;
                }
            }
        }
    }
    Ok((body, ended, buffer.len()))
}

#[test]
fn a_body_is_the_same_however_it_is_cut() {
    let io: &[u8] = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nA: b\r\n\r\nGET";
    for cut in 0..io.len() {
        let (body, ended, left) = decode(&[&io[..cut], &io[cut..]]).unwrap();
        assert_eq!((body.as_slice(), ended, left), (&b"hello world"[..], true, 3), "at {cut}");
    }
}

#[test]
fn malformed_sizes_are_refused() {
    for bad in
        ["\r\n", "g\r\n", "-1\r\n", "0x5\r\n", " 5\r\n", "5 \r\n", "5 ;a\r\n", "5\n", "5\r\r\n"]
    {
        assert!(decode(&[bad.as_bytes()]).is_err(), "{bad:?}");
    }
    assert_eq!(decode(&[b"11111111111111111\r\n"]), Err(ChunkError::Size));
    assert_eq!(decode(&[b"8000000000000000\r\n"]), Err(ChunkError::Size));
}

#[test]
fn data_must_end_where_its_size_says() {
    assert_eq!(decode(&[b"3\r\nabcd\r\n"]), Err(ChunkError::End));
    assert_eq!(decode(&[b"3\r\nabc\n0\r\n\r\n"]), Err(ChunkError::End));
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let long = format!("1;{}", "x".repeat(2 * MAX_LINE));
    assert_eq!(decode(&[long.as_bytes()]), Err(ChunkError::Line));
    let many = format!("1;{}\r\na\r\n", "x".repeat(MAX_LINE - 8)).repeat(100);
    assert_eq!(decode(&[many.as_bytes()]), Err(ChunkError::Extensions));
    let trailers = format!("0\r\n{}", "A: b\r\n".repeat(10_000));
    assert_eq!(decode(&[trailers.as_bytes()]), Err(ChunkError::Trailers));
    for bad in ["no colon\r\n\r\n", "\n", "A: b\nC: d\r\n\r\n", " A: b\r\n\r\n"] {
        let io = format!("0\r\n{bad}");
        assert_eq!(decode(&[io.as_bytes()]), Err(ChunkError::Trailers), "{bad:?}");
    }
}
