//! Reads the notation files. The grammar stands in docs/formats/notation.md.

use super::model::{Field, Kind, Message, Struct, Type, Versions};

/// A fault in a notation file.
#[derive(Debug)]
pub struct NotationError {
    pub line: usize,
    pub what: String,
}

type Result<T> = std::result::Result<T, NotationError>;

struct Line<'a> {
    number: usize,
    depth: usize,
    words: Vec<&'a str>,
}

impl Line<'_> {
    fn fault<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(NotationError {
            line: self.number,
            what: what.into(),
        })
    }
}

/// Parses one file into its messages, in file order.
pub fn parse(text: &str) -> Result<Vec<Message>> {
    let lines = split_lines(text)?;
    let mut messages = Vec::new();
    let mut rest = lines.as_slice();
    while let Some((head, after)) = rest.split_first() {
        if head.depth != 0 {
            return head.fault("a message starts without indentation");
        }
        let end = after
            .iter()
            .position(|l| l.depth == 0)
            .unwrap_or(after.len());
        messages.push(parse_message(head, &after[..end])?);
        rest = &after[end..];
    }
    Ok(messages)
}

fn split_lines(text: &str) -> Result<Vec<Line<'_>>> {
    let mut lines = Vec::new();
    for (i, raw) in text.lines().enumerate() {
        let bare = raw.split('#').next().unwrap_or_default().trim_end();
        if bare.is_empty() {
            continue;
        }
        let spaces = bare.len() - bare.trim_start().len();
        let line = Line {
            number: i + 1,
            depth: spaces / 2,
            words: bare.split_whitespace().collect(),
        };
        if spaces % 2 != 0 || bare.contains('\t') {
            return line.fault("indent by two spaces");
        }
        lines.push(line);
    }
    Ok(lines)
}

fn parse_message(head: &Line<'_>, body: &[Line<'_>]) -> Result<Message> {
    let (kind, suffix) = match head.words.first().copied() {
        Some("request") => (Kind::Request, "Request"),
        Some("response") => (Kind::Response, "Response"),
        Some("record") => (Kind::Record, ""),
        Some("data") => (Kind::Data, ""),
        _ => return head.fault("expected request, response, record or data"),
    };
    let Some(name) = head.words.get(1) else {
        return head.fault("the message has no name");
    };
    let (mut key, mut versions, mut flexible) = (None, None, None);
    for pair in head.words[2..].chunks(2) {
        match pair {
            ["key", n] => key = Some(number(head, n)?),
            ["versions", v] => versions = Some(range(head, v, i16::MAX)?),
            ["flexible", "none"] => flexible = Some(None),
            ["flexible", v] => {
                flexible = Some(Some(range(head, v, i16::MAX)?.low));
            }
            _ => return head.fault(format!("not understood: {}", pair.join(" "))),
        }
    }
    let (Some(versions), Some(flexible)) = (versions, flexible) else {
        return head.fault("a message says its versions and its flexible versions");
    };
    if matches!(kind, Kind::Request | Kind::Record) != key.is_some() {
        return head.fault("a request and a record have a key, others none");
    }
    let name = format!("{name}{suffix}");
    let mut structs = Vec::new();
    let fields = parse_fields(body, 1, versions, versions, &mut structs)?;
    let body = Struct {
        name: name.clone(),
        versions,
        fields,
    };
    let mut message = Message {
        kind,
        name,
        key,
        versions,
        flexible,
        body,
        structs,
    };
    check_names(head, &message)?;
    narrow_shared_structs(&mut message);
    Ok(message)
}

/// Fields of one block at `depth`; structs found inside go to `structs`.
fn parse_fields(
    lines: &[Line<'_>],
    depth: usize,
    context: Versions,
    message: Versions,
    structs: &mut Vec<Struct>,
) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    let mut rest = lines;
    while let Some((line, after)) = rest.split_first() {
        if line.depth != depth {
            return line.fault("indented too deep");
        }
        let end = after
            .iter()
            .position(|l| l.depth <= depth)
            .unwrap_or(after.len());
        let block = &after[..end];
        rest = &after[end..];
        if let ["struct", name] = line.words[..] {
            let inner = parse_fields(block, depth + 1, message, message, structs)?;
            structs.push(Struct {
                name: name.to_owned(),
                versions: message,
                fields: inner,
            });
            continue;
        }
        let field = parse_field(line, context, message)?;
        if !block.is_empty() {
            let Some(name) = struct_name(&field.ty) else {
                return line.fault("only a struct has fields of its own");
            };
            let name = name.to_owned();
            let inner = parse_fields(block, depth + 1, field.versions, message, structs)?;
            structs.push(Struct {
                name,
                versions: field.versions,
                fields: inner,
            });
        }
        fields.push(field);
    }
    Ok(fields)
}

fn parse_field(line: &Line<'_>, context: Versions, message: Versions) -> Result<Field> {
    let [name, ty, flags @ ..] = &line.words[..] else {
        return line.fault("a field is: name type [versions] [flags]");
    };
    let mut field = Field {
        name: (*name).to_owned(),
        ty: parse_type(line, ty)?,
        versions: context,
        null: None,
        tag: None,
        default: None,
        ignorable: false,
        own: false,
        classic: false,
        few: false,
    };
    let is_range = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let mut flags = flags.iter().copied().peekable();
    if let Some(word) = flags.next_if(is_range) {
        field.versions = range(line, word, message.high)?;
        if !context.contains(field.versions) {
            return line.fault("versions outside those of the struct around it");
        }
    }
    while let Some(flag) = flags.next() {
        match flag {
            "null" => {
                let versions = match flags.next_if(is_range) {
                    Some(word) => range(line, word, message.high)?,
                    None => field.versions,
                };
                field.null = Some(versions);
            }
            "tag" => field.tag = Some(number(line, flags.next().unwrap_or_default())?),
            "=" => field.default = Some(flags.next().unwrap_or_default().to_owned()),
            "ignorable" => field.ignorable = true,
            "own" => field.own = true,
            "classic" => field.classic = true,
            "few" => field.few = true,
            other => return line.fault(format!("not understood: {other}")),
        }
    }
    if field.few && (!matches!(field.ty, Type::Array(_)) || field.null.is_some()) {
        return line.fault("only an array that is never null has few elements");
    }
    Ok(field)
}

fn parse_type(line: &Line<'_>, word: &str) -> Result<Type> {
    Ok(match word {
        "bool" => Type::Bool,
        "int8" => Type::Int8,
        "int16" => Type::Int16,
        "uint16" => Type::Uint16,
        "int32" => Type::Int32,
        "uint32" => Type::Uint32,
        "int64" => Type::Int64,
        "float64" => Type::Float64,
        "uuid" => Type::Uuid,
        "string" => Type::Str,
        "bytes" => Type::Bytes,
        "records" => Type::Records,
        _ => match word.strip_prefix("[]") {
            Some(element) => Type::Array(Box::new(parse_type(line, element)?)),
            None if word.starts_with(|c: char| c.is_ascii_uppercase()) => {
                Type::Struct(word.to_owned())
            }
            None => return line.fault(format!("no such type: {word}")),
        },
    })
}

/// Name of the struct inside a type, if there is one.
pub fn struct_name(ty: &Type) -> Option<&str> {
    match ty {
        Type::Struct(name) => Some(name),
        Type::Array(element) => struct_name(element),
        _ => None,
    }
}

fn check_names(head: &Line<'_>, message: &Message) -> Result<()> {
    for (i, s) in message.structs.iter().enumerate() {
        if message.structs[..i]
            .iter()
            .any(|other| other.name == s.name)
        {
            return head.fault(format!("struct {} is defined twice", s.name));
        }
    }
    for s in message.structs.iter().chain([&message.body]) {
        for f in &s.fields {
            if let Some(name) = struct_name(&f.ty)
                && !message.structs.iter().any(|s| s.name == name)
            {
                return head.fault(format!("struct {name} of {} is not defined", f.name));
            }
        }
    }
    Ok(())
}

/// A struct written once with `struct` and used by several fields lives in the hull of their
/// versions. Uses are narrowed from the outside in.
fn narrow_shared_structs(message: &mut Message) {
    for _ in 0..message.structs.len() {
        let mut hulls: Vec<Option<Versions>> = vec![None; message.structs.len()];
        for s in message.structs.iter().chain([&message.body]) {
            for f in &s.fields {
                let Some(name) = struct_name(&f.ty) else {
                    continue;
                };
                let Some(used) = f.versions.meet(s.versions) else {
                    continue;
                };
                for (hull, target) in hulls.iter_mut().zip(&message.structs) {
                    if target.name == name {
                        *hull = Some(hull.map_or(used, |h| h.hull(used)));
                    }
                }
            }
        }
        for (s, hull) in message.structs.iter_mut().zip(hulls) {
            s.versions = hull.unwrap_or(s.versions);
        }
    }
}

fn number<N: std::str::FromStr>(line: &Line<'_>, word: &str) -> Result<N> {
    word.parse()
        .or_else(|_| line.fault(format!("not a number: {word}")))
}

/// `3`, `3-7` or `3+`.
fn range(line: &Line<'_>, word: &str, open_end: i16) -> Result<Versions> {
    let (low, high) = if let Some(low) = word.strip_suffix('+') {
        (number(line, low)?, open_end)
    } else if let Some((low, high)) = word.split_once('-') {
        (number(line, low)?, number(line, high)?)
    } else {
        let only = number(line, word)?;
        (only, only)
    };
    if low > high {
        return line.fault(format!("empty range: {word}"));
    }
    Ok(Versions { low, high })
}
