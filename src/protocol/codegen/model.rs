//! What a notation file says, resolved: every version range is closed, every struct has its fields.

/// A closed range of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    pub low: i16,
    pub high: i16,
}

impl Versions {
    pub fn contains(self, other: Versions) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    pub fn holds(self, version: i16) -> bool {
        (self.low..=self.high).contains(&version)
    }

    pub fn meet(self, other: Versions) -> Option<Versions> {
        let both = Versions {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        };
        (both.low <= both.high).then_some(both)
    }

    pub fn hull(self, other: Versions) -> Versions {
        Versions {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}

/// What a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Request,
    Response,
    /// A record of the metadata log.
    Record,
    /// Anything else: headers, control records.
    Data,
}

/// Type of one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Uuid,
    Str,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Type>),
}

/// One field. `versions` is where it is on the wire at all.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub ty: Type,
    pub versions: Versions,
    /// Where null is allowed.
    pub null: Option<Versions>,
    pub tag: Option<u32>,
    /// Text after `=`; `None` is the type's own default.
    pub default: Option<String>,
    /// May be dropped silently when the version has no place for it.
    pub ignorable: bool,
    /// Thalweg's own extension, not Kafka's.
    pub own: bool,
    /// A string that keeps its two-byte length in flexible versions.
    pub classic: bool,
    /// An array that nearly always has one element.
    pub few: bool,
}

/// One struct, `versions` being the hull of the fields that use it.
#[derive(Clone, Debug)]
pub struct Struct {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

/// One message with the structs inside it.
#[derive(Clone, Debug)]
pub struct Message {
    pub kind: Kind,
    /// Full Rust name, for example `FetchRequest`.
    pub name: String,
    pub key: Option<i16>,
    pub versions: Versions,
    /// First flexible version.
    pub flexible: Option<i16>,
    pub body: Struct,
    pub structs: Vec<Struct>,
}

impl Message {
    pub fn find(&self, name: &str) -> &Struct {
        self.structs
            .iter()
            .find(|s| s.name == name)
            .unwrap_or_else(|| panic!("{}: no struct {name}", self.name))
    }

    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible.is_some_and(|first| version >= first)
    }

    /// Fewest bytes one value of `ty` takes in `version`.
    pub fn min_bytes(&self, ty: &Type, version: i16, nullable: bool) -> usize {
        let flexible = self.is_flexible(version);
        match ty {
            Type::Bool | Type::Int8 => 1,
            Type::Int16 | Type::Uint16 => 2,
            Type::Int32 | Type::Uint32 => 4,
            Type::Int64 | Type::Float64 => 8,
            Type::Uuid => 16,
            Type::Str => {
                if flexible {
                    1
                } else {
                    2
                }
            }
            Type::Bytes | Type::Records | Type::Array(_) => {
                if flexible {
                    1
                } else {
                    4
                }
            }
            Type::Struct(_) if nullable => 1,
            Type::Struct(name) => self.struct_min_bytes(self.find(name), version),
        }
    }

    fn struct_min_bytes(&self, s: &Struct, version: i16) -> usize {
        let fields: usize = s
            .fields
            .iter()
            .filter(|f| f.tag.is_none() && f.versions.holds(version))
            .map(|f| self.min_bytes(&f.ty, version, f.null.is_some_and(|n| n.holds(version))))
            .sum();
        fields + usize::from(self.is_flexible(version))
    }

    /// Fewest bytes of one array element over all versions of `versions`; at least 1, so that a
    /// count never outgrows the bytes that are left.
    pub fn element_min_bytes(&self, ty: &Type, versions: Versions) -> usize {
        (versions.low..=versions.high)
            .map(|v| self.min_bytes(ty, v, false))
            .min()
            .unwrap_or(1)
            .max(1)
    }
}
