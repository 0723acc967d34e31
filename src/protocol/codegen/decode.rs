//! Emits the reading half of a struct.

use std::fmt::Write as _;

use super::emit::{Place, ident, line};
use super::model::{Field, Type};

/// Writes `fn read`.
pub fn function(code: &mut String, place: &Place<'_>, depth: usize) {
    let mut body = String::new();
    fields(&mut body, place, depth + 1);
    let form = form_line(place, &body);
    let v = if uses(&body, "v") || uses(&form, "v") {
        "v"
    } else {
        "_v"
    };
    line!(
        code,
        depth,
        "pub(super) fn read(d: &mut Decoder, {v}: i16) -> Self {{"
    );
    if !form.is_empty() {
        line!(code, depth + 1, "{form}");
    }
    code.push_str(&body);
    line!(code, depth, "}}");
}

/// The line that says how lengths are written, if `body` asks.
pub fn form_line(place: &Place<'_>, body: &str) -> String {
    if uses(body, "form") {
        format!("let form = {};", place.form())
    } else {
        String::new()
    }
}

/// Does `name` stand in `code` as a word of its own?
pub fn uses(code: &str, name: &str) -> bool {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '"')
        .any(|word| word == name)
}

fn fields(code: &mut String, place: &Place<'_>, inner: usize) {
    let s = place.s;
    for f in &s.fields {
        let name = ident(&f.name);
        if f.tag.is_some() {
            line!(code, inner, "let mut {name} = {};", typed_default(place, f));
            continue;
        }
        let value = value(place, f);
        match place.condition(f.versions) {
            None => line!(code, inner, "let {name} = {value};"),
            Some(condition) => line!(
                code,
                inner,
                "let {name} = if {condition} {{ {value} }} else {{ {} }};",
                typed_default(place, f)
            ),
        }
    }
    tagged_section(code, place, inner);
    let names: Vec<String> = s.fields.iter().map(|f| ident(&f.name)).collect();
    line!(code, inner, "Self {{ {} }}", names.join(", "));
}

/// The default where nothing else says the type.
fn typed_default(place: &Place<'_>, f: &Field) -> String {
    let stated = place.default_value(f);
    if stated != "Default::default()" {
        return stated;
    }
    match &f.ty {
        Type::Bool => "false".into(),
        Type::Uuid => "Uuid::ZERO".into(),
        Type::Str => "String::new()".into(),
        Type::Bytes => "Bytes::new()".into(),
        Type::Array(_) if f.few => "Few::new()".into(),
        Type::Array(_) => "Vec::new()".into(),
        Type::Struct(name) => format!("{}::default()", place.struct_path(name)),
        Type::Float64 => "0.0".into(),
        _ => "0".into(),
    }
}

fn tagged_section(code: &mut String, place: &Place<'_>, depth: usize) {
    let tagged: Vec<&Field> = place.s.fields.iter().filter(|f| f.tag.is_some()).collect();
    if place.form() == "Form::Classic" {
        return;
    }
    if tagged.is_empty() {
        line!(code, depth, "d.skip_tags(form);");
        return;
    }
    line!(code, depth, "let mut tags = d.tags(form);");
    line!(
        code,
        depth,
        "while let Some(tag) = d.next_tag(&mut tags) {{"
    );
    line!(code, depth + 1, "match tag {{");
    for f in tagged {
        let tag = f.tag.unwrap_or_default();
        let guard = match place.condition(f.versions) {
            Some(condition) => format!(" if {condition}"),
            None => String::new(),
        };
        line!(
            code,
            depth + 2,
            "{tag}{guard} => {} = {},",
            ident(&f.name),
            value(place, f)
        );
    }
    line!(code, depth + 2, "_ => d.skip_tag(&tags),");
    line!(code, depth + 1, "}}");
    line!(code, depth, "}}");
}

/// Expression that reads one field, including its null rule.
fn value(place: &Place<'_>, f: &Field) -> String {
    let form = if f.classic { "Form::Classic" } else { "form" };
    let plain = read(place, &f.ty, f, form, false);
    let Some(null) = f.null.and_then(|n| n.meet(f.versions)) else {
        return plain;
    };
    let optional = read(place, &f.ty, f, form, true);
    if null == f.versions {
        return optional;
    }
    let plain = if f.ty == Type::Records {
        plain
    } else {
        format!("Some({plain})")
    };
    match place.condition(null) {
        None => optional,
        Some(condition) => format!("if {condition} {{ {optional} }} else {{ {plain} }}"),
    }
}

fn read(place: &Place<'_>, ty: &Type, f: &Field, form: &str, optional: bool) -> String {
    let opt = if optional { "_opt" } else { "" };
    match ty {
        Type::Bool => "d.bool()".into(),
        Type::Int8 => "d.i8()".into(),
        Type::Int16 => "d.i16()".into(),
        Type::Uint16 => "d.u16()".into(),
        Type::Int32 => "d.i32()".into(),
        Type::Uint32 => "d.u32()".into(),
        Type::Int64 => "d.i64()".into(),
        Type::Float64 => "d.f64()".into(),
        Type::Uuid => "d.uuid()".into(),
        Type::Str => format!("d.string{opt}({form})"),
        Type::Bytes => format!("d.bytes{opt}({form})"),
        Type::Records => format!("d.records{opt}({form})"),
        Type::Struct(name) if optional => {
            format!("d.struct_opt(v, {}::read)", place.struct_path(name))
        }
        Type::Struct(name) => format!("{}::read(d, v)", place.struct_path(name)),
        Type::Array(element) => {
            let min = place.message.element_min_bytes(element, f.versions);
            let reader = element_reader(place, element, f);
            match f.few {
                true => format!("d.few({form}, {min}, v, {reader})"),
                false => format!("d.array{opt}({form}, {min}, v, {reader})"),
            }
        }
    }
}

/// A function that reads one element; it may capture nothing.
fn element_reader(place: &Place<'_>, element: &Type, f: &Field) -> String {
    match element {
        Type::Struct(name) => format!("{}::read", place.struct_path(name)),
        Type::Str | Type::Bytes | Type::Array(_) => {
            let read = read(place, element, f, &place.form(), false);
            format!("|d, {}| {read}", version_name(&read))
        }
        _ => {
            let read = read(place, element, f, "form", false);
            format!("|d, _| {read}")
        }
    }
}

/// `v` where the expression uses it.
pub fn version_name(expression: &str) -> &'static str {
    if uses(expression, "v") { "v" } else { "_" }
}
