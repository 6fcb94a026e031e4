//! HTTP/1.1 framing as Go's `net/http` reads it.

pub(super) type Headers = Vec<(String, String)>;

/// The received part of a body, and the error that ended it early.
pub(super) struct Body(pub(super) Vec<u8>, pub(super) Option<&'static str>);

/// Go's error for a message that breaks off.
pub(crate) const CUT: &str = "unexpected EOF";

/// `http.ReadResponse`: skips interim answers. `chunked` outranks `Content-Length`. Without either, the body lasts until the
/// connection is closed.
pub(super) fn receive(mut rest: &[u8]) -> Result<(u16, Headers, Body), String> {
    loop {
        let head = line(&mut rest).ok_or(CUT)?;
        let malformed = || format!("malformed HTTP response {head:?}");
        let versioned = |(version, _): &(&str, &str)| matches!(version.as_bytes(), [b'0'..=b'9', b'.', b'0'..=b'9']);
        let line = head.strip_prefix("HTTP/").and_then(|line| line.split_once(' '));
        let (version, status) = line.filter(versioned).ok_or_else(malformed)?;
        let code = status.trim_start_matches(' ').split(' ').next().filter(|code| code.len() == 3);
        let status: u16 = code.and_then(|code| code.parse().ok()).ok_or_else(malformed)?;
        let headers = read_headers(&mut rest)?;
        let codings: Vec<_> = values(&headers, "transfer-encoding").collect();
        let chunked = match &codings[..] {
            [] => false,
            _ if version < "1.1" => false,
            [one] if one.eq_ignore_ascii_case("chunked") => true,
            _ => return Err(format!("unsupported transfer encoding {codings:?}")),
        };
        let lengths: Vec<_> = values(&headers, "content-length").collect();
        let length = match &lengths[..] {
            [first, rest @ ..] if rest.iter().all(|other| other == first) => digits(first, 10),
            _ => None,
        };
        if length.is_none() && !lengths.is_empty() {
            return Err(format!("bad Content-Length {lengths:?}"));
        }
        let body = match length {
            _ if bodiless(status) => Body(Vec::new(), None),
            _ if chunked => read_chunks(rest),
            Some(length) if length > rest.len() => Body(rest.to_vec(), Some(CUT)),
            length => Body(rest[..length.unwrap_or(rest.len())].to_vec(), None),
        };
        if status == 101 || !(100..=199).contains(&status) {
            return Ok((status, headers, body));
        }
    }
}

pub(super) fn bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// Header lines up to a blank line. A line that starts with a space continues the line before.
fn read_headers(rest: &mut &[u8]) -> Result<Headers, String> {
    let mut headers = Headers::new();
    loop {
        let line = line(rest).ok_or(CUT)?;
        if line.is_empty() {
            return Ok(headers);
        }
        let last = headers.last_mut().filter(|_| line.starts_with([' ', '\t']));
        if let Some((_, value)) = last {
            *value = format!("{value} {}", line.trim_matches([' ', '\t']));
            continue;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        let token = |c: char| c.is_ascii_alphanumeric() || " !#$%&'*+-.^_`|~".contains(c);
        let named = !name.is_empty() && !name.starts_with(' ') && name.chars().all(token);
        if !named || value.contains(|c: char| c.is_ascii_control() && c != '\t') {
            return Err(format!("malformed MIME header line: {line:?}"));
        }
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
}

/// Removes the first line, without its `\n` or `\r\n`.
fn line(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    *rest = &rest[end + 1..];
    Some(String::from_utf8_lossy(line).into_owned())
}

/// A number without a sign.
fn digits(text: &str, radix: u32) -> Option<usize> {
    usize::from_str_radix(text, radix).ok().filter(|_| !text.starts_with('+'))
}

/// All values of a header. Names match without case.
pub(super) fn values<'a>(headers: &'a [(String, String)], name: &str) -> impl Iterator<Item = &'a str> {
    let same = move |(key, _): &&(String, String)| key.eq_ignore_ascii_case(name);
    headers.iter().filter(same).map(|(_, value)| value.as_str())
}

/// The bytes of a chunked body before its end or its first fault. Go reads them despite a fault.
fn read_chunks(mut rest: &[u8]) -> Body {
    let mut bytes = Vec::new();
    let broken = loop {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            break Some(CUT);
        };
        let size = str::from_utf8(&rest[..end]).ok().and_then(|line| line.split(';').next());
        let Some(size) = size.and_then(|size| digits(size.trim_end_matches([' ', '\t']), 16)) else {
            break Some("invalid byte in chunk length");
        };
        rest = &rest[end + 2..];
        if size == 0 {
            // Trailers, if any, and the last line end are part of the body.
            break read_headers(&mut rest).err().map(|_| "http: unexpected EOF reading trailer");
        }
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        bytes.extend_from_slice(chunk);
        match after {
            [b'\r', b'\n', after @ ..] => rest = after,
            [] | [_] => break Some(CUT),
            _ => break Some("malformed chunked encoding"),
        }
    };
    Body(bytes, broken)
}
