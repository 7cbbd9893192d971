//! What may be shown of a URL that cannot be used.
//!
//! Such a URL is malformed, so where its password stands is a guess: bare delimiters in a password, a forgotten host, or an encoded delimiter are
//! usual reasons why it is malformed. Shown is therefore only what can be nothing else: scheme, host, a port that is one, a path
//! where no password can have got into it. All before the last `@`, and all settings, are hidden.

/// The schemes that mean Redis: no password.
pub(crate) const KNOWN: &[&str] = &["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];

/// A URL without anything that may be a user or a password.
pub(crate) fn mask(url: &str) -> String {
    let url = decoded(url);
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) && (KNOWN.contains(&scheme) || !rest.contains('@')) => {
            (&url[..scheme.len() + 3], rest)
        }
        _ => ("", url.as_str()),
    };
    let settings = rest.find(['?', '#', '&']).into_iter().chain(find_password(rest)).min();
    let (body, settings) = rest.split_at(settings.unwrap_or(rest.len()));
    // A bare `?` or `#` in the password: then the body is its beginning.
    if settings.contains('@') && !scheme.contains("unix") {
        return format!("{scheme}***");
    }
    let (login, place) = match body.rfind('@') {
        Some(at) => ("***@", &body[at + 1..]),
        None => ("", body),
    };
    let hidden = settings.chars().next().map_or(String::new(), |delimiter| format!("{delimiter}***"));
    let place = if scheme.contains("unix") { place.to_owned() } else { masked_place(place, login.is_empty()) };
    format!("{scheme}{login}{place}{hidden}")
}

/// `host[:port][/path]`, unless it may be `user:password`, with the host forgotten and the path the password's rest.
fn masked_place(place: &str, may_be_login: bool) -> String {
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let brackets = ipv6_length(authority);
    let Some(colon) = authority[brackets..].find(':').map(|at| brackets + at) else {
        // Half a scheme, and a login after it.
        return if may_be_login && path.contains(':') { "***".to_owned() } else { place.to_owned() };
    };
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok());
    let is_db = path.bytes().all(|b| b == b'/' || b.is_ascii_digit());
    match (is_port, may_be_login) {
        (true, true) if is_db => place.to_owned(),
        (true, false) => place.to_owned(),
        (false, false) => format!("{host}:***"),
        (_, true) => "***".to_owned(),
    }
}

/// How many bytes of an authority are an IPv6 address in brackets.
fn ipv6_length(authority: &str) -> usize {
    let address = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let is_one = |(address, port): &(&str, &str)| {
        address.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b))
            && (port.is_empty() || port.starts_with(':'))
    };
    address.filter(is_one).map_or(0, |(address, _)| address.len() + 2)
}

pub(crate) fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// Where a setting that names a password begins.
pub(crate) fn find_password(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    ["pass=", "passwd=", "password="].iter().filter_map(|name| text.find(name)).min()
}

/// The URL with everything readable in the clear that is percent-encoded: whoever encodes the whole of it, encodes its delimiters too.
pub(crate) fn decoded(url: &str) -> String {
    let mut out = String::with_capacity(url.len());
    let mut rest = url;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let code = rest.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(b) if b.is_ascii_graphic() => {
                out.push(char::from(b));
                rest = &rest[3..];
            }
            _ => {
                out.push('%');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn shown_is_what_can_be_no_password() {
        for (url, shown) in [
            ("", ""),
            ("localhost:6379", "localhost:6379"),
            ("http://host/0", "http://host/0"),
            ("redis://host/x", "redis://host/x"),
            ("redis://[::1]:6379/2", "redis://[::1]:6379/2"),
            ("unix:///run/r.sock", "unix:///run/r.sock"),
            ("unix:///run/r.sock?db=x&pass=s3crt", "unix:///run/r.sock?***"),
            ("unix:///run/r.sock?pass=a@s3crt&db=x", "unix:///run/r.sock?***"),
            ("unix:///run/r.sock&pass=s3crt", "unix:///run/r.sock&***"),
            ("redis://ann:s3crt@host:1/x", "redis://***@host:1/x"),
            ("redis://s3crt@host/x", "redis://***@host/x"),
            ("redis://ann:s3@cr/t@host:1:2", "redis://***@host:***"),
            ("redis://ann:1?s3crt@host/x", "redis://***"),
            ("redis://ann:1#s3crt@host/x", "redis://***"),
            ("unix:///run/pa%73s=s3crt", "unix:///run/p***"),
            ("unix:///run/PASSWORD=s3crt", "unix:///run/P***"),
            // Without a host.
            ("redis://ann:s3crt", "redis://***"),
            ("redis://:s3crt/0", "redis://***"),
            ("redis://ann:12/s3crt", "redis://***"),
            ("redis://ann:123456", "redis://***"),
            ("redis:s3crt", "***"),
            ("redis://[ann:s3crt]", "redis://***"),
            ("redis://[::1]s3crt", "redis://***"),
            ("redis//ann:s3crt@host", "***@host"),
            ("ann:s3://crt@host", "***@host"),
            ("s3crt://x@host", "***@host"),
            ("redis//ann:s3crt", "***"),
            ("unix:///run/redis:6379.sock", "unix:///run/redis:6379.sock"),
            // Encoded.
            ("redis://ann%3As3crt%40host", "redis://***@host"),
            ("redis%3A%2F%2Fann%3as3crt%40host%zz%", "redis://***@host%zz%"),
            ("unix:///run/r.sock%3Fpass=s3crt", "unix:///run/r.sock?***"),
        ] {
            assert_eq!(mask(url), shown, "{url:?}");
        }
    }
}
