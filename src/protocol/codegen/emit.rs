//! Struct definitions, defaults and trait implementations.

use std::fmt::Write as _;

use super::model::{Field, Kind, Message, Struct, Type, Versions};
use super::{decode, encode};

/// Appends one line, indented by `depth` levels.
macro_rules! line {
    ($code:expr, $depth:expr, $($text:tt)*) => {{
        crate::codegen::emit::indent(&mut *$code, $depth);
        writeln!($code, $($text)*).expect("writing to a String");
    }};
}
pub(super) use line;

pub fn indent(code: &mut String, depth: usize) {
    code.push_str(&"    ".repeat(depth));
}

/// Writes `message`: its own struct at the top, the structs inside it in a module.
pub fn message(code: &mut String, message: &Message) {
    struct_definition(code, message, &message.body, 0);
    implement_message(code, message);
    if message.structs.is_empty() {
        code.push('\n');
        return;
    }
    line!(code, 0, "\n/// Structs inside [`{}`].", message.name);
    line!(code, 0, "pub mod {} {{", snake(&message.name));
    line!(code, 1, "use super::*;");
    for s in &message.structs {
        code.push('\n');
        struct_definition(code, message, s, 1);
    }
    line!(code, 0, "}}\n");
}

fn struct_definition(code: &mut String, message: &Message, s: &Struct, depth: usize) {
    let place = Place::new(message, s);
    let derive_default = s.fields.iter().all(|f| place.default_is_natural(f));
    line!(code, depth, "/// {}", struct_doc(message, s));
    let default = if derive_default { ", Default" } else { "" };
    line!(code, depth, "#[derive(Debug, Clone, PartialEq{default})]");
    line!(code, depth, "pub struct {} {{", s.name);
    for f in &s.fields {
        line!(code, depth + 1, "/// {}", field_doc(s, f));
        line!(
            code,
            depth + 1,
            "pub {}: {},",
            ident(&f.name),
            place.rust_type(f)
        );
    }
    line!(code, depth, "}}");
    if !derive_default {
        line!(code, 0, "");
        line!(code, depth, "impl Default for {} {{", s.name);
        line!(code, depth + 1, "fn default() -> Self {{");
        line!(code, depth + 2, "Self {{");
        for f in &s.fields {
            line!(
                code,
                depth + 3,
                "{}: {},",
                ident(&f.name),
                place.default_value(f)
            );
        }
        line!(code, depth + 2, "}}");
        line!(code, depth + 1, "}}");
        line!(code, depth, "}}");
    }
    line!(code, 0, "");
    line!(code, depth, "impl {} {{", s.name);
    decode::function(code, &place, depth + 1);
    line!(code, 0, "");
    encode::function(code, &place, depth + 1);
    line!(code, depth, "}}");
}

fn struct_doc(message: &Message, s: &Struct) -> String {
    let versions = shown(s.versions);
    if s.name != message.name {
        return format!("Part of [`{}`], versions {versions}.", message.name);
    }
    let key = match (message.kind, message.key) {
        (Kind::Request, Some(key)) => format!("API key {key}, "),
        (Kind::Record, Some(key)) => format!("Metadata record type {key}, "),
        _ => String::new(),
    };
    match message.flexible {
        Some(first) => format!("{key}versions {versions}, flexible from {first}."),
        None => format!("{key}versions {versions}, never flexible."),
    }
}

fn field_doc(s: &Struct, f: &Field) -> String {
    let mut doc = match s.versions == f.versions {
        true => String::from("In all versions"),
        false if f.versions.low == f.versions.high => format!("Version {}", f.versions.low),
        false => format!("Versions {}", shown(f.versions)),
    };
    if let Some(tag) = f.tag {
        let _ = write!(doc, ", tag {tag}");
    }
    if let Some(null) = f.null {
        let _ = write!(doc, ", may be null in {}", shown(null));
    }
    if let Some(default) = f.default.as_deref().filter(|d| *d != "null") {
        let _ = write!(doc, ", default {default}");
    }
    if !f.ignorable && s.versions != f.versions {
        doc.push_str(", must be the default elsewhere");
    }
    doc.push('.');
    if f.own {
        doc.push_str(" Thalweg's own extension, not part of Kafka's protocol.");
    }
    doc
}

fn shown(v: Versions) -> String {
    if v.low == v.high {
        v.low.to_string()
    } else {
        format!("{} to {}", v.low, v.high)
    }
}

fn implement_message(code: &mut String, m: &Message) {
    let name = &m.name;
    line!(code, 0, "\nimpl Message for {name} {{");
    line!(code, 1, "const NAME: &'static str = \"{name}\";");
    line!(
        code,
        1,
        "const VERSIONS: RangeInclusive<i16> = {}..={};",
        m.versions.low,
        m.versions.high
    );
    let flexible = m.flexible.map_or("None".into(), |f| format!("Some({f})"));
    line!(code, 1, "const FLEXIBLE_FROM: Option<i16> = {flexible};");
    line!(
        code,
        1,
        "fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {{"
    );
    line!(code, 2, "check_decode(d, Self::NAME, Self::VERSIONS, v);");
    line!(code, 2, "let message = Self::read(d, v);");
    line!(code, 2, "d.check().map(|()| message)");
    line!(code, 1, "}}");
    line!(
        code,
        1,
        "fn encode(&self, e: &mut Encoder, v: i16) -> Result<(), EncodeError> {{"
    );
    line!(code, 2, "check_encode(e, Self::NAME, Self::VERSIONS, v);");
    line!(code, 2, "self.write(e, v);");
    line!(code, 2, "e.check()");
    line!(code, 1, "}}");
    line!(code, 0, "}}");
    let Some(key) = m.key else { return };
    match m.kind {
        Kind::Request => {
            let api = name.trim_end_matches("Request");
            line!(code, 0, "\nimpl Request for {name} {{");
            line!(code, 1, "const KEY: ApiKey = ApiKey::{api};");
            line!(code, 1, "type Response = {api}Response;");
            line!(code, 0, "}}");
        }
        Kind::Record => {
            line!(code, 0, "\nimpl MetadataRecord for {name} {{");
            line!(code, 1, "const TYPE: u32 = {key};");
            line!(code, 0, "}}");
        }
        Kind::Response | Kind::Data => {}
    }
}

/// Table of all messages for tests, fuzzing and tools.
pub fn table(code: &mut String, messages: &[Message]) {
    line!(
        code,
        0,
        "/// Every message, by name of its notation file, then in file order."
    );
    line!(code, 0, "pub static CODECS: &[Codec] = &[");
    for m in messages {
        line!(code, 1, "Codec::of::<{}>(),", m.name);
    }
    line!(code, 0, "];");
}

/// A struct in its message: answers what its fields look like in Rust.
pub struct Place<'a> {
    pub message: &'a Message,
    pub s: &'a Struct,
}

impl<'a> Place<'a> {
    pub fn new(message: &'a Message, s: &'a Struct) -> Place<'a> {
        Place { message, s }
    }

    /// Name used in errors.
    pub fn path(&self, f: &Field) -> String {
        if self.s.name == self.message.name {
            format!("{}.{}", self.s.name, f.name)
        } else {
            format!("{}.{}.{}", self.message.name, self.s.name, f.name)
        }
    }

    /// Expression of the [`Form`] in this struct: a constant where its versions allow.
    pub fn form(&self) -> String {
        match self.message.flexible {
            None => "Form::Classic".into(),
            Some(first) if first <= self.s.versions.low => "Form::Compact".into(),
            Some(first) if first > self.s.versions.high => "Form::Classic".into(),
            Some(first) => format!("Form::at(v, {first})"),
        }
    }

    /// Condition on `v` for being inside `versions`; `None` when always.
    pub fn condition(&self, versions: Versions) -> Option<String> {
        let (here, low, high) = (self.s.versions, versions.low, versions.high);
        match (low > here.low, high < here.high) {
            (false, false) => None,
            _ if low == high => Some(format!("v == {low}")),
            (true, false) => Some(format!("v >= {low}")),
            (false, true) => Some(format!("v <= {high}")),
            (true, true) => Some(format!("({low}..={high}).contains(&v)")),
        }
    }

    pub fn rust_type(&self, f: &Field) -> String {
        let bare = match &f.ty {
            Type::Array(element) if f.few => format!("Few<{}>", self.bare_type(element)),
            ty => self.bare_type(ty),
        };
        if f.null.is_some() || f.ty == Type::Records {
            format!("Option<{bare}>")
        } else {
            bare
        }
    }

    pub fn bare_type(&self, ty: &Type) -> String {
        match ty {
            Type::Bool => "bool".into(),
            Type::Int8 => "i8".into(),
            Type::Int16 => "i16".into(),
            Type::Uint16 => "u16".into(),
            Type::Int32 => "i32".into(),
            Type::Uint32 => "u32".into(),
            Type::Int64 => "i64".into(),
            Type::Float64 => "f64".into(),
            Type::Uuid => "Uuid".into(),
            Type::Str => "String".into(),
            Type::Bytes => "Bytes".into(),
            Type::Records => "Records".into(),
            Type::Struct(name) => self.struct_path(name),
            Type::Array(element) => format!("Vec<{}>", self.bare_type(element)),
        }
    }

    /// Path of a struct of this message as seen from this struct.
    pub fn struct_path(&self, name: &str) -> String {
        if self.s.name == self.message.name {
            format!("{}::{name}", snake(&self.message.name))
        } else {
            name.to_owned()
        }
    }

    /// Is the protocol's default what `Default` gives?
    fn default_is_natural(&self, f: &Field) -> bool {
        let nullable = f.null.is_some();
        match f.default.as_deref() {
            Some("null") => true,
            Some("0" | "false") => !nullable,
            Some(_) => false,
            None => !nullable || f.ty == Type::Records,
        }
    }

    pub fn default_value(&self, f: &Field) -> String {
        if f.default.as_deref() == Some("null") || f.ty == Type::Records {
            return "None".into();
        }
        let value = match (&f.default, &f.ty) {
            (Some(text), Type::Str) => format!("String::from({text})"),
            (Some(text), Type::Float64) => format!("{text}f64"),
            (Some(text), _) => text.clone(),
            (None, _) => "Default::default()".into(),
        };
        if f.null.is_some() {
            format!("Some({value})")
        } else {
            value
        }
    }

    /// Condition "this field has its default".
    pub fn is_default(&self, f: &Field) -> String {
        let x = format!("self.{}", ident(&f.name));
        let text = f.default.as_deref();
        if text == Some("null") || f.ty == Type::Records {
            return format!("{x}.is_none()");
        }
        let nullable = f.null.is_some();
        match &f.ty {
            Type::Array(_) if nullable => format!("{x}.as_ref().is_some_and(Vec::is_empty)"),
            Type::Bytes if nullable => format!("{x}.as_ref().is_some_and(Bytes::is_empty)"),
            Type::Str if nullable => {
                format!("{x}.as_deref() == Some({})", text.unwrap_or("\"\""))
            }
            _ if nullable => format!("{x} == {}", self.default_value(f)),
            Type::Array(_) | Type::Bytes => format!("{x}.is_empty()"),
            Type::Str => match text {
                Some(text) => format!("{x} == {text}"),
                None => format!("{x}.is_empty()"),
            },
            Type::Uuid => format!("{x}.is_zero()"),
            Type::Bool if text == Some("true") => x,
            Type::Bool => format!("!{x}"),
            Type::Struct(name) => format!("{x} == {}::default()", self.struct_path(name)),
            Type::Float64 => format!("{x} == {}", text.unwrap_or("0.0")),
            _ => format!("{x} == {}", text.unwrap_or("0")),
        }
    }
}

/// Escapes Rust's own words.
pub fn ident(name: &str) -> String {
    match name {
        "type" | "match" | "use" | "move" | "ref" | "where" | "as" | "in" => format!("r#{name}"),
        _ => name.to_owned(),
    }
}

/// `FetchRequest` -> `fetch_request`.
pub fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (i, c) in chars.iter().enumerate() {
        let next_is_lower = chars.get(i + 1).is_some_and(char::is_ascii_lowercase);
        let after_lower = i > 0 && !chars[i - 1].is_ascii_uppercase();
        if i > 0 && c.is_ascii_uppercase() && (after_lower || next_is_lower) {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
