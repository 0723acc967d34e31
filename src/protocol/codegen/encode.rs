//! Emits the writing half of a struct.

use std::fmt::Write as _;

use super::decode::{form_line, uses, version_name};
use super::emit::{Place, ident, line};
use super::model::{Field, Type};

/// Writes `fn write`.
pub fn function(code: &mut String, place: &Place<'_>, depth: usize) {
    let mut body = String::new();
    for f in place.s.fields.iter().filter(|f| f.tag.is_none()) {
        field(&mut body, place, f, depth + 1);
    }
    tagged_section(&mut body, place, depth + 1);
    let form = form_line(place, &body);
    let v = if uses(&body, "v") || uses(&form, "v") {
        "v"
    } else {
        "_v"
    };
    let e = if uses(&body, "e") { "e" } else { "_e" };
    line!(
        code,
        depth,
        "pub(super) fn write(&self, {e}: &mut Encoder, {v}: i16) {{"
    );
    if !form.is_empty() {
        line!(code, depth + 1, "{form}");
    }
    code.push_str(&body);
    line!(code, depth, "}}");
}

fn field(code: &mut String, place: &Place<'_>, f: &Field, depth: usize) {
    let Some(condition) = place.condition(f.versions) else {
        body(code, place, f, depth);
        return;
    };
    line!(code, depth, "if {condition} {{");
    body(code, place, f, depth + 1);
    no_place_arm(code, place, f, depth);
}

/// Closes an `if` with what happens to a value that the version has no place for.
fn no_place_arm(code: &mut String, place: &Place<'_>, f: &Field, depth: usize) {
    if !f.ignorable {
        line!(
            code,
            depth,
            "}} else if {} {{",
            negate(&place.is_default(f))
        );
        line!(code, depth + 1, "e.no_place(\"{}\", v);", place.path(f));
    }
    line!(code, depth, "}}");
}

/// The field itself, with the check that null is allowed.
fn body(code: &mut String, place: &Place<'_>, f: &Field, depth: usize) {
    let form = if f.classic { "Form::Classic" } else { "form" };
    let x = format!("self.{}", ident(&f.name));
    let optional = f.null.is_some() || f.ty == Type::Records;
    let null = f.null.and_then(|n| n.meet(f.versions));
    if optional && null != Some(f.versions) {
        let allowed = null.and_then(|n| place.condition(n));
        match (null, allowed) {
            // Allowed wherever this struct lives.
            (Some(_), None) => {}
            (_, allowed) => {
                let only = allowed.map_or(String::new(), |c| format!(" && {}", negate(&c)));
                line!(code, depth, "if {x}.is_none(){only} {{");
                line!(code, depth + 1, "e.null(\"{}\", v);", place.path(f));
                line!(code, depth, "}}");
            }
        }
    }
    line!(code, depth, "{};", write(place, &f.ty, &x, form, optional));
}

fn negate(condition: &str) -> String {
    if let Some(inner) = condition.strip_prefix('!') {
        return inner.to_owned();
    }
    if let Some((a, b)) = condition.split_once(" == ") {
        return format!("{a} != {b}");
    }
    if let Some((a, b)) = condition.split_once(" >= ") {
        return format!("{a} < {b}");
    }
    if let Some((a, b)) = condition.split_once(" <= ") {
        return format!("{a} > {b}");
    }
    if let Some(x) = condition.strip_suffix(".is_none()") {
        return format!("{x}.is_some()");
    }
    format!("!{condition}")
}

fn tagged_section(code: &mut String, place: &Place<'_>, depth: usize) {
    if place.form() == "Form::Classic" {
        return;
    }
    let mut tagged: Vec<&Field> = place.s.fields.iter().filter(|f| f.tag.is_some()).collect();
    tagged.sort_by_key(|f| f.tag);
    if tagged.is_empty() {
        line!(code, depth, "e.no_tags(form);");
        return;
    }
    for f in &tagged {
        let set = negate(&place.is_default(f));
        let set_name = format!("has_{}", f.name);
        match place.condition(f.versions) {
            None => line!(code, depth, "let {set_name} = {set};"),
            Some(condition) if f.ignorable => {
                line!(code, depth, "let {set_name} = {condition} && {set};");
            }
            Some(condition) => {
                line!(code, depth, "let {set_name} = {set};");
                line!(code, depth, "if {set_name} && {} {{", negate(&condition));
                line!(code, depth + 1, "e.no_place(\"{}\", v);", place.path(f));
                line!(code, depth, "}}");
            }
        }
    }
    let counts: Vec<String> = tagged
        .iter()
        .map(|f| format!("u32::from(has_{})", f.name))
        .collect();
    line!(code, depth, "if form == Form::Compact {{");
    line!(code, depth + 1, "e.uvarint({});", counts.join(" + "));
    for f in &tagged {
        line!(code, depth + 1, "if has_{} {{", f.name);
        line!(
            code,
            depth + 2,
            "let mark = e.tag_begin({});",
            f.tag.unwrap_or_default()
        );
        body(code, place, f, depth + 2);
        line!(code, depth + 2, "e.tag_end(&mark);");
        line!(code, depth + 1, "}}");
    }
    line!(code, depth, "}}");
}

/// Statement that writes `x`, an `Option` when `optional`.
fn write(place: &Place<'_>, ty: &Type, x: &str, form: &str, optional: bool) -> String {
    match ty {
        Type::Str if optional => format!("e.string_opt({form}, {x}.as_deref())"),
        Type::Str => format!("e.string({form}, &{x})"),
        Type::Bytes if optional => format!("e.bytes_opt({form}, {x}.as_deref())"),
        Type::Bytes => format!("e.bytes({form}, &{x})"),
        Type::Records => format!("e.records_opt({form}, {x}.as_ref())"),
        Type::Struct(name) if optional => {
            format!(
                "e.struct_opt({x}.as_ref(), v, {}::write)",
                place.struct_path(name)
            )
        }
        Type::Struct(_) => format!("{x}.write(e, v)"),
        Type::Array(element) => {
            let writer = element_writer(place, element);
            if optional {
                format!("e.array_opt({form}, {x}.as_deref(), v, {writer})")
            } else {
                format!("e.array({form}, &{x}, v, {writer})")
            }
        }
        number => format!("e.{}({x})", number_method(number)),
    }
}

/// A function that writes one element; it may capture nothing.
fn element_writer(place: &Place<'_>, element: &Type) -> String {
    match element {
        Type::Struct(name) => format!("{}::write", place.struct_path(name)),
        Type::Str | Type::Bytes | Type::Array(_) => {
            let write = match element {
                Type::Str => format!("e.string({}, x)", place.form()),
                Type::Bytes => format!("e.bytes({}, x)", place.form()),
                _ => write(place, element, "x", &place.form(), false).replace("&x", "x"),
            };
            format!("|x, e, {}| {write}", version_name(&write))
        }
        number => format!("|x, e, _| e.{}(*x)", number_method(number)),
    }
}

fn number_method(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::Uint16 => "u16",
        Type::Int32 => "i32",
        Type::Uint32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        Type::Str | Type::Bytes | Type::Records | Type::Struct(_) | Type::Array(_) => {
            unreachable!("not a number")
        }
    }
}
