//! Words of MongoDB's expression language.

use mongodb::bson::{Bson, Document, doc};
use std::time::Duration;

/// A value that is not read as an expression: a name may begin with `$`.
pub(crate) fn literal(value: impl Into<Bson>) -> Bson {
    doc! { "$literal": value.into() }.into()
}

pub(crate) fn field(path: &str) -> Bson {
    format!("${path}").into()
}

/// The server's time in milliseconds: one value for the whole command.
///
/// Times are compared and added as numbers, because not every server of the protocol does that with dates.
pub(crate) fn now() -> Bson {
    doc! { "$toLong": "$$NOW" }.into()
}

pub(crate) fn millis(date: impl Into<Bson>) -> Bson {
    doc! { "$toLong": date.into() }.into()
}

pub(crate) fn date(millis: impl Into<Bson>) -> Bson {
    doc! { "$toDate": millis.into() }.into()
}

/// The date at which this much time has passed since now.
pub(crate) fn after(time: Duration) -> Bson {
    date(sum([now(), long(time).into()]))
}

/// The later one of a date and a time in milliseconds. A date that is absent is earlier than any.
pub(crate) fn latest(date_or_absent: impl Into<Bson>, time: Bson) -> Bson {
    date(greatest([millis(date_or_absent), time]))
}

/// Milliseconds as MongoDB counts them. What is too long to count is longer than any server runs.
pub(crate) fn long(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(1 << 50)
}

pub(crate) fn eq(a: impl Into<Bson>, b: impl Into<Bson>) -> Bson {
    doc! { "$eq": [a.into(), b.into()] }.into()
}

pub(crate) fn ne(a: impl Into<Bson>, b: impl Into<Bson>) -> Bson {
    doc! { "$ne": [a.into(), b.into()] }.into()
}

pub(crate) fn gt(a: impl Into<Bson>, b: impl Into<Bson>) -> Bson {
    doc! { "$gt": [a.into(), b.into()] }.into()
}

pub(crate) fn all<const N: usize>(terms: [Bson; N]) -> Bson {
    doc! { "$and": terms.to_vec() }.into()
}

pub(crate) fn any<const N: usize>(terms: [Bson; N]) -> Bson {
    doc! { "$or": terms.to_vec() }.into()
}

pub(crate) fn not(term: impl Into<Bson>) -> Bson {
    doc! { "$not": [term.into()] }.into()
}

pub(crate) fn sum<const N: usize>(terms: [Bson; N]) -> Bson {
    doc! { "$add": terms.to_vec() }.into()
}

pub(crate) fn greatest<const N: usize>(terms: [Bson; N]) -> Bson {
    doc! { "$max": terms.to_vec() }.into()
}

pub(crate) fn cond(condition: impl Into<Bson>, then: impl Into<Bson>, otherwise: impl Into<Bson>) -> Bson {
    doc! { "$cond": [condition.into(), then.into(), otherwise.into()] }.into()
}

/// A field, or this if there is none.
pub(crate) fn or(field: impl Into<Bson>, otherwise: impl Into<Bson>) -> Bson {
    doc! { "$ifNull": [field.into(), otherwise.into()] }.into()
}

pub(crate) fn filter(array: impl Into<Bson>, condition: impl Into<Bson>) -> Bson {
    doc! { "$filter": { "input": array.into(), "cond": condition.into() } }.into()
}

pub(crate) fn map(array: impl Into<Bson>, each: impl Into<Bson>) -> Bson {
    doc! { "$map": { "input": array.into(), "in": each.into() } }.into()
}

/// One array of several.
pub(crate) fn chain<const N: usize>(arrays: [Bson; N]) -> Bson {
    doc! { "$concatArrays": arrays.to_vec() }.into()
}

pub(crate) fn size(array: impl Into<Bson>) -> Bson {
    doc! { "$size": array.into() }.into()
}

/// Words with spaces between them.
pub(crate) fn words(words: impl IntoIterator<Item = Bson>) -> Bson {
    let mut parts: Vec<Bson> = Vec::new();
    for word in words {
        if !parts.is_empty() {
            parts.push(" ".into());
        }
        parts.push(word);
    }
    doc! { "$concat": parts }.into()
}

pub(crate) fn text(number: impl Into<Bson>) -> Bson {
    doc! { "$toString": number.into() }.into()
}

/// What a stage sets a field to that is to be absent.
pub(crate) const ABSENT: &str = "$$REMOVE";

pub(crate) fn set(fields: Document) -> Document {
    doc! { "$set": fields }
}
