//! Looks through a typed result before it becomes JSON: for nesting that recursive code cannot take, and for numbers
//! that JSON cannot express.

use std::{
    borrow::Cow,
    fmt::{self, Display},
};

use budao_core::nesting;
use serde::ser::{self, Serialize};

use crate::explain;

/// Why a result must not become JSON as it is.
#[derive(Debug, PartialEq)]
pub(super) enum Flaw {
    /// Nested deeper than [`nesting::LEVELS_MAX`].
    TooDeep,
    /// A NaN or an infinity, and the JSON pointer to it.
    NotFinite {
        /// The number itself.
        number: f64,
        /// The place of the number in the result.
        pointer: String,
    },
    /// The type's own serialization failed.
    Other,
}

impl Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Flaw {}

impl ser::Error for Flaw {
    fn custom<T: Display>(_: T) -> Self {
        Self::Other
    }
}

/// Walks through a value without storing it. Stops at the first flaw.
pub(super) fn inspect<T: Serialize + ?Sized>(value: &T) -> Result<(), Flaw> {
    value.serialize(&mut Inspector::default())
}

/// The path to the current value.
#[derive(Default)]
struct Inspector {
    path: Vec<Segment>,
}

enum Segment {
    Key(Cow<'static, str>),
    Index(usize),
}

impl Inspector {
    fn enter(&mut self, segment: Segment) -> Result<(), Flaw> {
        if self.path.len() >= nesting::LEVELS_MAX {
            return Err(Flaw::TooDeep);
        }
        self.path.push(segment);
        Ok(())
    }

    fn check_number(&self, number: f64) -> Result<(), Flaw> {
        if number.is_finite() {
            return Ok(());
        }
        let pointer = self.path.iter().map(|segment| match segment {
            Segment::Key(key) => format!("/{}", explain::escaped(key)),
            Segment::Index(index) => format!("/{index}"),
        });
        Err(Flaw::NotFinite { number, pointer: pointer.collect() })
    }

    fn child<T: Serialize + ?Sized>(&mut self, segment: Segment, value: &T) -> Result<(), Flaw> {
        self.enter(segment)?;
        value.serialize(&mut *self)?;
        self.path.pop();
        Ok(())
    }
}

/// The parts of a list, a tuple, a map or a struct.
struct Parts<'a> {
    inspector: &'a mut Inspector,
    next: usize,
    key: String,
    /// Whether the parts are inside a map of one key, as variants are.
    in_variant: bool,
}

impl<'a> Parts<'a> {
    fn of(inspector: &'a mut Inspector) -> Result<Self, Flaw> {
        if inspector.path.len() >= nesting::LEVELS_MAX {
            return Err(Flaw::TooDeep);
        }
        Ok(Self { inspector, next: 0, key: String::new(), in_variant: false })
    }

    fn of_variant(inspector: &'a mut Inspector, variant: &'static str) -> Result<Self, Flaw> {
        inspector.enter(Segment::Key(variant.into()))?;
        Ok(Self { in_variant: true, ..Self::of(inspector)? })
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Flaw> {
        let index = self.next;
        self.next += 1;
        self.inspector.child(Segment::Index(index), value)
    }

    fn field<T: Serialize + ?Sized>(
        &mut self,
        key: Cow<'static, str>,
        value: &T,
    ) -> Result<(), Flaw> {
        self.inspector.child(Segment::Key(key), value)
    }

    fn finish(self) -> Result<(), Flaw> {
        if self.in_variant {
            self.inspector.path.pop();
        }
        Ok(())
    }
}

macro_rules! fine {
    ($($method:ident($($type:ty)?)),* $(,)?) => {
        $(fn $method(self, $(_: $type)?) -> Result<(), Flaw> { Ok(()) })*
    };
}

impl<'a> ser::Serializer for &'a mut Inspector {
    type Ok = ();
    type Error = Flaw;
    type SerializeSeq = Parts<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Parts<'a>;
    type SerializeMap = Parts<'a>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Parts<'a>;

    fine!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_i128(i128),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_u128(u128),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_none(),
        serialize_unit(),
        serialize_unit_struct(&'static str),
    );

    fn serialize_f32(self, number: f32) -> Result<(), Flaw> {
        self.check_number(number.into())
    }

    fn serialize_f64(self, number: f64) -> Result<(), Flaw> {
        self.check_number(number)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Flaw> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Flaw> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Flaw> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Flaw> {
        self.child(Segment::Key(variant.into()), value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'a>, Flaw> {
        Parts::of(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'a>, Flaw> {
        Parts::of(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>, Flaw> {
        Parts::of(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Flaw> {
        Parts::of_variant(self, variant)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'a>, Flaw> {
        Parts::of(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>, Flaw> {
        Parts::of(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Flaw> {
        Parts::of_variant(self, variant)
    }
}

macro_rules! of_items {
    ($($trait:ident::$method:ident),* $(,)?) => {$(
        impl ser::$trait for Parts<'_> {
            type Ok = ();
            type Error = Flaw;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Flaw> {
                self.item(value)
            }

            fn end(self) -> Result<(), Flaw> {
                self.finish()
            }
        }
    )*};
}

of_items!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
);

macro_rules! of_fields {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Parts<'_> {
            type Ok = ();
            type Error = Flaw;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Flaw> {
                self.field(key.into(), value)
            }

            fn end(self) -> Result<(), Flaw> {
                self.finish()
            }
        }
    )*};
}

of_fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Flaw;

    /// Keeps the key for the path: texts and numbers as they are; other keys fail in the real serialization.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Flaw> {
        let key = serde_json::to_value(key).map_err(|_| Flaw::Other)?;
        self.key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Flaw> {
        let key = std::mem::take(&mut self.key);
        self.field(key.into(), value)
    }

    fn end(self) -> Result<(), Flaw> {
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(serde::Serialize)]
    struct Report {
        mean: f64,
        parts: BTreeMap<String, Vec<Option<f32>>>,
    }

    #[test]
    fn a_number_without_json_is_found_with_its_place() {
        let parts = BTreeMap::from([("a/b".to_owned(), vec![Some(1.0), None, Some(f32::NAN)])]);
        let flaw = inspect(&Report { mean: 1.5, parts }).unwrap_err();
        assert!(
            matches!(&flaw, Flaw::NotFinite { number, pointer }
                if number.is_nan() && pointer == "/parts/a~1b/2"),
            "{flaw:?}"
        );
        let endless = Report { mean: f64::INFINITY, parts: BTreeMap::new() };
        let pointer = "/mean".to_owned();
        assert_eq!(inspect(&endless), Err(Flaw::NotFinite { number: f64::INFINITY, pointer }));
        assert_eq!(inspect(&Report { mean: 0.0, parts: BTreeMap::new() }), Ok(()));
    }
}
