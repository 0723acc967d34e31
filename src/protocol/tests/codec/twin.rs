//! The dumb twin: interprets the notation to make bytes and to say what bytes mean.

use serde_json::{Map, Value, json};

use crate::model::{Field, Message, Struct, Type};

/// A small deterministic generator (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Whether Thalweg's own fields are among what is made.
#[derive(Clone, Copy, PartialEq)]
pub enum Own {
    Included,
    LeftOut,
}

/// Makes one random message in `version`, in canonical form: tags of default values are omitted.
pub fn random_bytes(message: &Message, version: i16, own: Own, rng: &mut Rng) -> Vec<u8> {
    let mut maker = Maker {
        message,
        version,
        own,
        rng,
        out: Vec::new(),
    };
    maker.body(&message.body);
    maker.out
}

struct Maker<'a> {
    message: &'a Message,
    version: i16,
    own: Own,
    rng: &'a mut Rng,
    out: Vec<u8>,
}

impl Maker<'_> {
    fn flexible(&self) -> bool {
        self.message.is_flexible(self.version)
    }

    fn body(&mut self, s: &Struct) {
        let version = self.version;
        for f in s
            .fields
            .iter()
            .filter(|f| f.tag.is_none() && f.versions.holds(version))
        {
            self.field(f);
        }
        if !self.flexible() {
            return;
        }
        let mut tagged: Vec<(u32, Vec<u8>)> = Vec::new();
        for f in s.fields.iter().filter(|f| f.versions.holds(version)) {
            let Some(tag) = f.tag else { continue };
            if (f.own && self.own == Own::LeftOut) || self.rng.one_in(3) {
                continue;
            }
            let start = self.out.len();
            self.field(f);
            let value = self.out.split_off(start);
            if value != self.default_bytes(f) {
                tagged.push((tag, value));
            }
        }
        tagged.sort();
        uvarint(&mut self.out, tagged.len() as u64);
        for (tag, value) in tagged {
            uvarint(&mut self.out, u64::from(tag));
            uvarint(&mut self.out, value.len() as u64);
            self.out.extend(value);
        }
    }

    fn field(&mut self, f: &Field) {
        let nullable = f.null.is_some_and(|n| n.holds(self.version));
        let compact = self.flexible() && !f.classic;
        if nullable && self.rng.one_in(4) {
            match f.ty {
                Type::Struct(_) => self.out.push(0xff),
                Type::Str => length(&mut self.out, None, compact, 2),
                _ => length(&mut self.out, None, compact, 4),
            }
            return;
        }
        if nullable && matches!(f.ty, Type::Struct(_)) {
            self.out.push(1);
        }
        self.value(&f.ty, compact);
    }

    fn value(&mut self, ty: &Type, compact: bool) {
        let number = self.number();
        let width = match ty {
            Type::Bool => {
                self.out.push((number & 1) as u8);
                return;
            }
            Type::Int8 => 1,
            Type::Int16 | Type::Uint16 => 2,
            Type::Int32 | Type::Uint32 => 4,
            Type::Int64 => 8,
            Type::Float64 => {
                // Finite: NaN is unequal to itself.
                let value = (number as i32) as f64 / 8.0;
                self.out.extend(value.to_be_bytes());
                return;
            }
            Type::Uuid => {
                let high = if number == 0 { 0 } else { self.rng.next() };
                self.out.extend(high.to_be_bytes());
                self.out.extend(number.to_be_bytes());
                return;
            }
            Type::Str => {
                let text = self.text();
                length(&mut self.out, Some(text.len()), compact, 2);
                self.out.extend(text.as_bytes());
                return;
            }
            Type::Bytes | Type::Records => {
                let len = self.length();
                length(&mut self.out, Some(len), compact, 4);
                for _ in 0..len {
                    let byte = self.rng.next() as u8;
                    self.out.push(byte);
                }
                return;
            }
            Type::Struct(name) => {
                let message = self.message;
                self.body(message.find(name));
                return;
            }
            Type::Array(element) => {
                let count = self.rng.below(4) as usize;
                length(&mut self.out, Some(count), compact, 4);
                for _ in 0..count {
                    self.value(element, compact);
                }
                return;
            }
        };
        self.out
            .extend_from_slice(&number.to_be_bytes()[8 - width..]);
    }

    /// Often small or at an edge.
    fn number(&mut self) -> u64 {
        match self.rng.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => self.rng.below(200),
            3 => 0x7fff_ffff_ffff_ffff >> (8 * self.rng.below(8)),
            _ => self.rng.next(),
        }
    }

    /// Sometimes long enough for a varint of two bytes.
    fn length(&mut self) -> usize {
        let longest = if self.rng.one_in(8) { 300 } else { 9 };
        self.rng.below(longest) as usize
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 8] = ['a', 'Z', '0', '.', '-', ' ', 'ß', '波'];
        (0..self.length())
            .map(|_| LETTERS[self.rng.below(8) as usize])
            .collect()
    }

    /// Bytes of the field's default value in this version.
    fn default_bytes(&self, f: &Field) -> Vec<u8> {
        let mut out = Vec::new();
        let stated = f.default.as_deref();
        if stated == Some("null") {
            match f.ty {
                Type::Struct(_) => out.push(0xff),
                _ => length(&mut out, None, true, 4),
            }
            return out;
        }
        let number: i64 = match stated {
            Some("true") => 1,
            Some(text) => text.parse().unwrap_or(0),
            None => 0,
        };
        let width = match &f.ty {
            Type::Bool | Type::Int8 => 1,
            Type::Int16 | Type::Uint16 => 2,
            Type::Int32 | Type::Uint32 => 4,
            Type::Int64 | Type::Float64 => 8,
            Type::Uuid => return vec![0; 16],
            Type::Str | Type::Bytes | Type::Records | Type::Array(_) => {
                length(&mut out, Some(0), true, 4);
                return out;
            }
            Type::Struct(name) => {
                let s = self.message.find(name);
                for f in &s.fields {
                    if f.tag.is_none() && f.versions.holds(self.version) {
                        out.extend(self.default_bytes(f));
                    }
                }
                out.push(0);
                return out;
            }
        };
        out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
        out
    }
}

pub fn uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn length(out: &mut Vec<u8>, len: Option<usize>, compact: bool, classic_width: usize) {
    let signed = len.map_or(-1, |l| l as i64);
    if compact {
        uvarint(out, (signed + 1) as u64);
    } else {
        out.extend_from_slice(&signed.to_be_bytes()[8 - classic_width..]);
    }
}

/// What `bytes` mean, in the form of Kafka's JSON converters. Panics on invalid bytes.
pub fn to_json(message: &Message, version: i16, bytes: &[u8]) -> Value {
    let mut reader = Reader {
        message,
        version,
        rest: bytes,
    };
    let value = reader.body(&message.body);
    assert!(
        reader.rest.is_empty(),
        "{} v{version}: bytes left",
        message.name
    );
    value
}

struct Reader<'a> {
    message: &'a Message,
    version: i16,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        head
    }

    fn number(&mut self, width: usize) -> i64 {
        let bytes = self.take(width);
        let sign = if bytes[0] & 0x80 != 0 { -1 } else { 0 };
        bytes.iter().fold(sign, |n, b| (n << 8) | i64::from(*b))
    }

    fn uvarint(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.take(1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn length(&mut self, compact: bool, width: usize) -> Option<usize> {
        let signed = if compact {
            self.uvarint() as i64 - 1
        } else {
            self.number(width)
        };
        usize::try_from(signed).ok()
    }

    fn body(&mut self, s: &Struct) -> Value {
        let mut object = Map::new();
        let (version, flexible) = (self.version, self.message.is_flexible(self.version));
        for f in s
            .fields
            .iter()
            .filter(|f| f.tag.is_none() && f.versions.holds(version))
        {
            let value = self.field(f, flexible && !f.classic);
            insert(&mut object, f, value);
        }
        if flexible {
            for _ in 0..self.uvarint() {
                let tag = self.uvarint() as u32;
                let size = self.uvarint() as usize;
                let after = self.rest.len() - size;
                let f = s
                    .fields
                    .iter()
                    .find(|f| f.tag == Some(tag))
                    .expect("a known tag");
                let value = self.field(f, true);
                insert(&mut object, f, value);
                assert_eq!(self.rest.len(), after);
            }
        }
        Value::Object(object)
    }

    fn field(&mut self, f: &Field, compact: bool) -> Value {
        let nullable = f.null.is_some_and(|n| n.holds(self.version));
        if nullable && matches!(f.ty, Type::Struct(_)) && self.number(1) < 0 {
            return Value::Null;
        }
        self.value(&f.ty, compact)
    }

    fn value(&mut self, ty: &Type, compact: bool) -> Value {
        match ty {
            Type::Bool => json!(self.number(1) != 0),
            Type::Int8 => json!(self.number(1)),
            Type::Int16 => json!(self.number(2)),
            Type::Uint16 => json!(self.number(2) & 0xffff),
            Type::Int32 => json!(self.number(4)),
            Type::Uint32 => json!(self.number(4) & 0xffff_ffff),
            Type::Int64 => json!(self.number(8)),
            Type::Float64 => json!(f64::from_bits(self.number(8) as u64)),
            Type::Uuid => {
                let bytes = self.take(16).try_into().expect("16 bytes");
                json!(thalweg_types::Uuid(bytes).to_string())
            }
            Type::Str => {
                let len = self.length(compact, 2);
                len.map_or(Value::Null, |n| {
                    json!(std::str::from_utf8(self.take(n)).expect("UTF-8"))
                })
            }
            Type::Bytes | Type::Records => {
                let len = self.length(compact, 4);
                len.map_or(Value::Null, |n| {
                    let bytes = self.take(n);
                    if *ty == Type::Records {
                        json!(n)
                    } else {
                        json!(base64(bytes))
                    }
                })
            }
            Type::Struct(name) => {
                let message = self.message;
                self.body(message.find(name))
            }
            Type::Array(element) => match self.length(compact, 4) {
                None => Value::Null,
                Some(count) => (0..count).map(|_| self.value(element, compact)).collect(),
            },
        }
    }
}

fn insert(object: &mut Map<String, Value>, f: &Field, value: Value) {
    let mut name = f.name.replace('_', "");
    // Kafka's converters leave the batches out.
    if f.ty == Type::Records && !value.is_null() {
        name.push_str("sizeinbytes");
    }
    object.insert(name, value);
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0u8; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for i in 0..4 {
            let six = (word >> (18 - 6 * i)) & 0x3f;
            text.push(if i > chunk.len() {
                '='
            } else {
                char::from(ALPHABET[six as usize])
            });
        }
    }
    text
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
