//! Expected cost of a request in one quota, as a route has it.

use crate::scalars::{Amount, Price};
use crate::section::{any, section};
use crate::serde_forms::OneOrMany;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor, value};
use std::borrow::Cow;
use std::fmt;
use tidegate_policy::Units;

/// Expected cost of a request.
#[derive(Clone, Debug)]
pub(crate) enum RouteCost {
    /// An amount, or learned.
    Price(Price),
    /// What the body states.
    Stated(StatedCost),
}

section! {
    /// Expected cost that the JSON body of a request states.
    pub(crate) struct StatedCost {
        /// Path of a number in the body, or a list of paths, of whose numbers the largest counts, such as [max_tokens,
        /// max_completion_tokens]; at most 16. Dots separate the keys of nested objects, `\.` is a dot in a key, and a number is the
        /// index of an array. Text that is a number counts; a negative number is none. Of a key that repeats, or is written in other
        /// letter case, the largest number counts. Default none.
        json: OneOrMany<String>;
        /// Units that each byte of the body adds, to a thousandth: 0.25 if four bytes are a token.
        per_byte: Units = Units::ZERO => Amount, any;
        /// Least expected cost of a request whose body states none: there is no body or no number, the body is not one JSON object,
        /// or it is longer than the 64 KiB that are read.
        default: Units = Units::from_whole(1) => Amount, any;
    }
}

impl<'de> Deserialize<'de> for RouteCost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RouteCostVisitor)
    }
}

struct RouteCostVisitor;

impl<'de> Visitor<'de> for RouteCostVisitor {
    type Value = RouteCost;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(
            "an amount to a thousandth, learned, or what the body states; write 10, learned or { json: max_tokens }",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RouteCost, E> {
        Price::deserialize(value::StrDeserializer::new(text)).map(RouteCost::Price)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<RouteCost, E> {
        Price::deserialize(value::U64Deserializer::new(number)).map(RouteCost::Price)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<RouteCost, E> {
        Price::deserialize(value::F64Deserializer::new(number)).map(RouteCost::Price)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RouteCost, A::Error> {
        StatedCost::deserialize(value::MapAccessDeserializer::new(map)).map(RouteCost::Stated)
    }
}

impl JsonSchema for RouteCost {
    fn schema_name() -> Cow<'static, str> {
        "RouteCost".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (price, stated) = (generator.subschema_for::<Price>(), generator.subschema_for::<StatedCost>());
        json_schema!({ "anyOf": [price, stated] })
    }
}
