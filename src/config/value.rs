//! Values of properties: their kinds, how text becomes a value, and what is allowed.

use std::fmt;

/// Inclusive bounds of an integer property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Smallest allowed value.
    pub min: i64,
    /// Largest allowed value.
    pub max: i64,
}

impl Bounds {
    /// Any value of at least `min`.
    #[must_use]
    pub const fn at_least(min: i64) -> Bounds {
        Bounds { min, max: i64::MAX }
    }

    /// Any value from `min` to `max`, both included.
    #[must_use]
    pub const fn between(min: i64, max: i64) -> Bounds {
        Bounds { min, max }
    }

    /// No bound beyond the type's own.
    #[must_use]
    pub const fn any() -> Bounds {
        Bounds {
            min: i64::MIN,
            max: i64::MAX,
        }
    }

    const fn within(self, min: i64, max: i64) -> Bounds {
        Bounds {
            min: if self.min < min { min } else { self.min },
            max: if self.max > max { max } else { self.max },
        }
    }
}

/// What the items of a list property may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Items {
    /// Any text.
    Any,
    /// Only these words; naming one twice counts once.
    OneOf(&'static [&'static str]),
    /// `partition:broker` pairs, or `*` alone.
    ReplicaPairs,
    /// `host:number` pairs.
    HostLimits,
    /// `NAME://host:port`, as in `listeners`.
    Endpoints,
}

/// The type of a property and the values it takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Bool,
    /// A 16-bit integer.
    Short(Bounds),
    /// A 32-bit integer.
    Int(Bounds),
    /// A 32-bit integer that is `-1` or within the bounds.
    IntOrMinusOne(Bounds),
    /// A 64-bit integer.
    Long(Bounds),
    /// A 64-bit integer that is `-1` or within the bounds.
    LongOrMinusOne(Bounds),
    /// A floating-point number from `.0` to `.1`.
    Double(f64, f64),
    /// Any text.
    Text,
    /// One of the listed words.
    OneOf(&'static [&'static str]),
    /// One of the listed words, which are in lower case, in any case.
    AnyCaseOf(&'static [&'static str]),
    /// Comma-separated items.
    List(Items),
}

/// A parsed value. Its [`fmt::Display`] is the text that Kafka's tools show.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Of a [`Kind::Bool`].
    Bool(bool),
    /// Of the integer kinds.
    Int(i64),
    /// Of a [`Kind::Double`].
    Double(f64),
    /// Of a [`Kind::Text`], [`Kind::OneOf`] or [`Kind::AnyCaseOf`].
    Text(String),
    /// Of a [`Kind::List`]: trimmed, without repetitions.
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(i) => write!(f, "{i}"),
            Value::Double(d) => write!(f, "{d:?}"),
            Value::Text(t) => f.write_str(t),
            Value::List(items) => f.write_str(&items.join(",")),
        }
    }
}

impl Kind {
    /// Kafka's name of the type, in lower case.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Kind::Bool => "boolean",
            Kind::Short(_) => "short",
            Kind::Int(_) | Kind::IntOrMinusOne(_) => "int",
            Kind::Long(_) | Kind::LongOrMinusOne(_) => "long",
            Kind::Double(..) => "double",
            Kind::Text | Kind::OneOf(_) | Kind::AnyCaseOf(_) => "string",
            Kind::List(_) => "list",
        }
    }

    const fn bounds(&self) -> Option<Bounds> {
        match self {
            Kind::Short(b) => Some(b.within(i16::MIN as i64, i16::MAX as i64)),
            Kind::Int(b) | Kind::IntOrMinusOne(b) => {
                Some(b.within(i32::MIN as i64, i32::MAX as i64))
            }
            Kind::Long(b) | Kind::LongOrMinusOne(b) => Some(*b),
            Kind::Bool
            | Kind::Double(..)
            | Kind::Text
            | Kind::OneOf(_)
            | Kind::AnyCaseOf(_)
            | Kind::List(_) => None,
        }
    }

    /// What may be written for this kind, as a phrase that follows "must be".
    #[must_use]
    pub fn allowed(&self) -> String {
        match self {
            Kind::Bool => "true or false".to_string(),
            Kind::Short(_) | Kind::Int(_) | Kind::Long(_) => {
                describe_bounds(self.bounds().unwrap_or(Bounds::any()), self.type_name())
            }
            Kind::IntOrMinusOne(_) | Kind::LongOrMinusOne(_) => {
                let bounds = self.bounds().unwrap_or(Bounds::any());
                format!("{}, or -1", describe_bounds(bounds, self.type_name()))
            }
            Kind::Double(min, f64::MAX) => format!("a number of at least {min}"),
            Kind::Double(min, max) => format!("a number from {min} to {max}"),
            Kind::Text => "text".to_string(),
            Kind::OneOf(words) | Kind::AnyCaseOf(words) => format!("one of {}", words.join(", ")),
            Kind::List(Items::Any) => "a comma-separated list".to_string(),
            Kind::List(Items::OneOf(words)) => {
                format!("a comma-separated list of {}", words.join(", "))
            }
            Kind::List(Items::ReplicaPairs) => {
                "'*' or a comma-separated list of [partition]:[broker]".to_string()
            }
            Kind::List(Items::HostLimits) => {
                "a comma-separated list of [host or address]:[number]".to_string()
            }
            Kind::List(Items::Endpoints) => {
                "a comma-separated list of NAME://host:port".to_string()
            }
        }
    }

    /// Reads `text` as a value of this kind; white space around it does not count.
    ///
    /// # Errors
    /// [`NotAllowed`] when the text is not of the type or outside what is allowed.
    pub fn parse(&self, text: &str) -> Result<Value, NotAllowed> {
        let text = text.trim();
        match self {
            Kind::Bool if text.eq_ignore_ascii_case("true") => Ok(Value::Bool(true)),
            Kind::Bool if text.eq_ignore_ascii_case("false") => Ok(Value::Bool(false)),
            Kind::Bool => Err(NotAllowed),
            Kind::Short(_)
            | Kind::Int(_)
            | Kind::IntOrMinusOne(_)
            | Kind::Long(_)
            | Kind::LongOrMinusOne(_) => self.parse_integer(text),
            Kind::Double(min, max) => {
                let number: f64 = text.parse().map_err(|_| NotAllowed)?;
                let inside = number >= *min && number <= *max;
                if inside {
                    Ok(Value::Double(number))
                } else {
                    Err(NotAllowed)
                }
            }
            Kind::Text => Ok(Value::Text(text.to_string())),
            Kind::OneOf(words) if words.contains(&text) => Ok(Value::Text(text.to_string())),
            Kind::OneOf(_) => Err(NotAllowed),
            Kind::AnyCaseOf(words) => {
                let mut words = words.iter();
                let word = words.find(|word| word.eq_ignore_ascii_case(text));
                word.map(|word| Value::Text((*word).to_string()))
                    .ok_or(NotAllowed)
            }
            Kind::List(items) => parse_list(*items, text),
        }
    }

    fn parse_integer(&self, text: &str) -> Result<Value, NotAllowed> {
        let number: i64 = text.parse().map_err(|_| NotAllowed)?;
        let bounds = self.bounds().ok_or(NotAllowed)?;
        let minus_one = matches!(self, Kind::IntOrMinusOne(_) | Kind::LongOrMinusOne(_));
        let inside = (bounds.min..=bounds.max).contains(&number) || (minus_one && number == -1);
        if inside {
            Ok(Value::Int(number))
        } else {
            Err(NotAllowed)
        }
    }
}

/// The text is not a value of the property's kind. [`Kind::allowed`] says what would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAllowed;

fn describe_bounds(bounds: Bounds, type_name: &str) -> String {
    let whole = match type_name {
        "short" => (i64::from(i16::MIN), i64::from(i16::MAX)),
        "int" => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    match (bounds.min > whole.0, bounds.max < whole.1) {
        (false, false) => format!("a whole number of type {type_name}"),
        (true, false) => format!("a whole number of at least {} ({type_name})", bounds.min),
        (false, true) => format!("a whole number of at most {} ({type_name})", bounds.max),
        (true, true) => format!("a whole number from {} to {}", bounds.min, bounds.max),
    }
}

fn parse_list(items: Items, text: &str) -> Result<Value, NotAllowed> {
    let mut list: Vec<String> = Vec::new();
    if text.is_empty() {
        return Ok(Value::List(list));
    }
    for item in text.split(',').map(str::trim) {
        let fits = match items {
            Items::Any => !item.is_empty(),
            Items::OneOf(words) => words.contains(&item),
            Items::ReplicaPairs => item == "*" || is_replica_pair(item),
            Items::HostLimits => host_limit(item).is_some(),
            Items::Endpoints => Endpoint::parse(item).is_some(),
        };
        if !fits {
            return Err(NotAllowed);
        }
        if !list.iter().any(|known| known == item) {
            list.push(item.to_string());
        }
    }
    let star_in_company = list.len() > 1 && list.iter().any(|item| item == "*");
    if items == Items::ReplicaPairs && star_in_company {
        return Err(NotAllowed);
    }
    Ok(Value::List(list))
}

/// A host and its number; the last colon parts them, so that IPv6 addresses need no brackets.
pub(crate) fn host_limit(item: &str) -> Option<(&str, u32)> {
    let (host, number) = item.rsplit_once(':')?;
    let number: i32 = number.trim().parse().ok()?;
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some((host, u32::try_from(number).ok()?))
}

fn is_replica_pair(item: &str) -> bool {
    let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    item.split_once(':')
        .is_some_and(|(p, b)| all_digits(p) && all_digits(b))
}

/// One entry of `listeners` or `advertised.listeners`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Name of the listener, in upper case.
    pub name: String,
    /// Host name or address; empty means every address of the machine. An IPv6 address has no
    /// brackets here.
    pub host: String,
    /// TCP port; 0 in `listeners` lets the system choose.
    pub port: u16,
}

impl Endpoint {
    /// Reads `NAME://host:port`; `None` when the text is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Endpoint> {
        let (name, address) = text.split_once("://")?;
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let printable = host
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'/' && b != b',');
        let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        let named = !name.is_empty() && name.bytes().all(in_name);
        (named && printable).then(|| Endpoint {
            name: name.to_ascii_uppercase(),
            host: host.to_string(),
            port,
        })
    }

    /// Whether the host stands for every address of the machine.
    #[must_use]
    pub fn is_every_address(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host.is_empty() || address.is_ok_and(|address| address.is_unspecified())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { name, host, port } = self;
        match host.contains(':') {
            true => write!(f, "{name}://[{host}]:{port}"),
            false => write!(f, "{name}://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, Endpoint, Items, Kind, NotAllowed, Value};

    const POLICY: Kind = Kind::List(Items::OneOf(&["compact", "delete"]));

    #[test]
    fn integers_are_trimmed_and_bounded() {
        let kind = Kind::Int(Bounds::at_least(1));
        assert_eq!(kind.parse(" 5 "), Ok(Value::Int(5)));
        for bad in ["", "0", "1.0", "abc", "2147483648", "99999999999999999999"] {
            assert_eq!(kind.parse(bad), Err(NotAllowed), "{bad}");
        }
        assert_eq!(kind.allowed(), "a whole number of at least 1 (int)");
        let level = Kind::IntOrMinusOne(Bounds::between(1, 9));
        assert_eq!(level.parse("-1"), Ok(Value::Int(-1)));
        assert_eq!(level.parse("0"), Err(NotAllowed));
        assert_eq!(level.allowed(), "a whole number from 1 to 9, or -1");
    }

    #[test]
    fn lists_drop_repetitions_and_may_be_empty() {
        assert_eq!(
            POLICY.parse("delete,delete"),
            Ok(Value::List(vec!["delete".into()]))
        );
        assert_eq!(
            POLICY.parse("compact, delete").map(|v| v.to_string()),
            Ok("compact,delete".into())
        );
        assert_eq!(POLICY.parse(""), Ok(Value::List(vec![])));
        assert_eq!(POLICY.parse("foo"), Err(NotAllowed));
        assert_eq!(POLICY.parse("delete,"), Err(NotAllowed));
    }

    #[test]
    fn words_in_any_case_become_the_listed_ones() {
        let kind = Kind::AnyCaseOf(&["disabled", "upgrade"]);
        assert_eq!(kind.parse(" UpGrade"), Ok(Value::Text("upgrade".into())));
        assert_eq!(kind.parse("upgraded"), Err(NotAllowed));
    }

    #[test]
    fn replica_pairs() {
        let kind = Kind::List(Items::ReplicaPairs);
        for good in ["", "*", "0:1", "0:1, 1:2"] {
            assert!(kind.parse(good).is_ok(), "{good}");
        }
        for bad in ["none", "0:1,x", "*,0:1", "0:", ":", "-1:0"] {
            assert_eq!(kind.parse(bad), Err(NotAllowed), "{bad}");
        }
    }

    #[test]
    fn host_limits() {
        let kind = Kind::List(Items::HostLimits);
        for good in ["", "127.0.0.1:5", "build:0, ::1:7,[::2]:9"] {
            assert!(kind.parse(good).is_ok(), "{good}");
        }
        for bad in ["host", "host:", ":5", "host:-1", "host:x", "a:1,,b:2"] {
            assert_eq!(kind.parse(bad), Err(NotAllowed), "{bad}");
        }
        assert_eq!(super::host_limit("[::2]:9"), Some(("::2", 9)));
        assert_eq!(super::host_limit("::1:7"), Some(("::1", 7)));
    }

    #[test]
    fn booleans_and_doubles() {
        assert_eq!(Kind::Bool.parse("TRUE"), Ok(Value::Bool(true)));
        assert_eq!(Kind::Bool.parse("maybe"), Err(NotAllowed));
        let ratio = Kind::Double(0.0, 1.0);
        assert_eq!(ratio.parse("0.5").map(|v| v.to_string()), Ok("0.5".into()));
        assert_eq!(ratio.parse("1").map(|v| v.to_string()), Ok("1.0".into()));
        for bad in ["2", "NaN", "-0.1", ""] {
            assert_eq!(ratio.parse(bad), Err(NotAllowed), "{bad}");
        }
        assert_eq!(ratio.allowed(), "a number from 0 to 1");
        let rate = Kind::Double(1.0, f64::MAX);
        assert_eq!(rate.allowed(), "a number of at least 1");
    }

    #[test]
    fn endpoints() {
        let parsed = Endpoint::parse("PLAINTEXT://[::1]:9092").map(|e| (e.host, e.port));
        assert_eq!(parsed, Some(("::1".to_string(), 9092)));
        let parsed = Endpoint::parse("PLAINTEXT://:0").map(|e| (e.host, e.port));
        assert_eq!(parsed, Some((String::new(), 0)));
        for bad in [
            "",
            "host:9092",
            "://h:1",
            "A B://h:1",
            "PLAINTEXT://h",
            "PLAINTEXT://h:70000",
            "PLAINTEXT://::1:9092",
            "PLAINTEXT://a b:1",
            "PLAINTEXT://h/x:1",
        ] {
            assert_eq!(Endpoint::parse(bad), None, "{bad}");
        }
    }
}
