//! Numbers of documents in CEL. Whole numbers become `int`, so that `n + 1` works. Only larger ones become `uint`, and all others
//! `double`. A `double` that was read keeps its text: an expression that only passes it on returns it as it was written, and
//! so does `string(n)`. The result of a calculation is a new number.

use std::any::Any;

use cel::{
    Env, ExecutionError, IdedExpr,
    common::{
        ast::{CallExpr, Expr},
        traits::{Adder, Comparer, Divider, Multiplier, Negator, Subtractor, Zeroer},
        types::{CelDouble, CelInt, CelString, CelUInt, DYN_TYPE, Type},
        value::{CowVal, StaticVal, Val},
    },
    parser::Macro,
};
use serde_json::Number;

/// Gives a number's text in place of the number, and any other value as it is. Not a name that an expression can have.
pub(super) const WRITTEN: &str = "@written";
/// From here on, not every whole number is a float. A calculated one has lost digits, perhaps.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// `number` as CEL counts.
pub(super) fn to_cel(number: &Number) -> Box<dyn Val> {
    // `-0` would become `0`.
    match (number.as_i64().filter(|_| number.as_str() != "-0"), number.as_u64()) {
        (Some(number), _) => Box::new(CelInt::from(number)),
        (None, Some(number)) => Box::new(CelUInt::from(number)),
        (None, None) => {
            let value = CelDouble::from(number.as_f64().unwrap_or(f64::NAN));
            Box::new(WrittenDouble { value, number: number.clone() })
        }
    }
}

/// A whole number that is not negative.
pub(super) fn unsigned(number: u64) -> Box<dyn Val> {
    match i64::try_from(number) {
        Ok(number) => Box::new(CelInt::from(number)),
        Err(_) => Box::new(CelUInt::from(number)),
    }
}

/// The number in `value` as it was written, if it is a `double` that was read.
pub(super) fn written(value: &dyn Val) -> Option<Number> {
    value.downcast_ref::<CelDouble>()?;
    let text = value.as_adder()?.add(&TextWanted).ok()?;
    let text = text.downcast_ref::<CelString<'_>>()?;
    Some(Number::from_string_unchecked(text.inner().to_owned()))
}

/// The finite number `value`, which was calculated.
///
/// # Errors
/// When it is so large that digits may be lost.
pub(super) fn calculated(value: f64) -> Result<Number, Inexact> {
    Number::from_f64(value).filter(|_| value.abs() < INEXACT).ok_or(Inexact(value))
}

/// A number was calculated that may have lost digits.
#[derive(Debug, thiserror::Error)]
#[error("{0:e} was calculated, and is too large to be exact; calculate with whole numbers")]
pub(super) struct Inexact(f64);

/// Makes `string(n)` return the text in which `n` was written.
pub(super) fn add_to(environment: &mut Env) -> Result<(), cel::DeclarationError> {
    environment.add_overload(WRITTEN, "written", vec![DYN_TYPE], |mut args| {
        let value = args.remove(0);
        Ok(match written(value.as_ref()) {
            Some(number) => CowVal::owned(CelString::from(number.as_str().to_owned())),
            None => value,
        })
    })?;
    let call = |name: &str, argument: IdedExpr| {
        Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args: vec![argument] })
    };
    environment.add_macro(Macro::global("string", 1, move |helper, _, arguments| {
        let argument = arguments.remove(0);
        let inner = helper.next_expr(call(WRITTEN, argument));
        Ok(Some(helper.next_expr(call("string", inner))))
    }))
}

/// A `double` with its text. To CEL it is the [`CelDouble`] in it: CEL finds the type by [`Val::as_any`].
#[derive(Debug, Clone)]
struct WrittenDouble {
    value: CelDouble,
    number: Number,
}

/// Added to a [`WrittenDouble`], it returns the text. Nothing else adds it.
#[derive(Debug, Clone, Copy)]
struct TextWanted;

impl StaticVal for TextWanted {}

impl Val for TextWanted {
    fn get_type(&self) -> &Type {
        Self::cel_type()
    }

    fn cel_type() -> &'static Type {
        &DYN_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(*self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Val for WrittenDouble {
    fn get_type(&self) -> &Type {
        self.value.get_type()
    }

    fn cel_type() -> &'static Type {
        CelDouble::cel_type()
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_comparer(&self) -> Option<&dyn Comparer> {
        self.value.as_comparer()
    }

    fn as_divider<'b, 'v>(&'b self) -> Option<&'b (dyn Divider + 'v)>
    where
        Self: 'v,
    {
        self.value.as_divider()
    }

    fn as_multiplier<'b, 'v>(&'b self) -> Option<&'b (dyn Multiplier + 'v)>
    where
        Self: 'v,
    {
        self.value.as_multiplier()
    }

    fn as_negator<'b, 'v>(&'b self) -> Option<&'b (dyn Negator + 'v)>
    where
        Self: 'v,
    {
        self.value.as_negator()
    }

    fn as_subtractor<'b, 'v>(&'b self) -> Option<&'b (dyn Subtractor + 'v)>
    where
        Self: 'v,
    {
        self.value.as_subtractor()
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        self.value.as_zeroer()
    }

    fn equals(&self, other: &dyn Val) -> bool {
        self.value.equals(other)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(&self.value)
    }
}

impl Adder for WrittenDouble {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        if other.downcast_ref::<TextWanted>().is_some() {
            return Ok(CowVal::owned(CelString::from(self.number.as_str().to_owned())));
        }
        self.value.add(other)
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::Expression;
    use domain::document;

    /// In this process, and as an evaluator does it.
    fn evaluate(source: &str, body: &str) -> Result<String, String> {
        let expression = Expression::compile(source).unwrap();
        let here =
            expression.evaluate(&[("body", &document::read(body.as_bytes()).unwrap())]).map(|value| value.to_string());
        let here = here.map_err(|error| error.to_string());
        let there = expression.evaluate_json(&[("body", body.as_bytes())], usize::MAX).map(Option::unwrap);
        assert_eq!(here, there, "{source}");
        here
    }

    #[test]
    fn a_number_that_is_passed_on_keeps_its_text() {
        let body = r#"{"items":[{"n":1.10},{"n":7222E2},{"n":-0},{"n":1e+06},{"n":18446744073709551615},{"n":0.00001},{"n":7}]}"#;
        let all = r#"[{"v":1.10},{"v":7222E2},{"v":-0},{"v":1e+06},{"v":18446744073709551615},{"v":0.00001},{"v":7}]"#;
        assert_eq!(evaluate("body.items.map(i, {'v': i.n})", body).unwrap(), all);
        assert_eq!(evaluate("body.items.filter(i, i.n != 5).map(i, {'v': i.n})", body).unwrap(), all);
        assert_eq!(evaluate("body.items.map(i, i.n).reverse()[5]", body).unwrap(), "7222E2");
        assert_eq!(evaluate("[body.items[0].n, true ? body.items[1].n : 0.0]", body).unwrap(), "[1.10,7222E2]");
        let texts = r#"["v1.10","v7222E2","v-0","v1e+06","v18446744073709551615","v0.00001","v7"]"#;
        assert_eq!(evaluate("body.items.map(i, 'v' + string(i.n))", body).unwrap(), texts);
        assert_eq!(
            evaluate("[string('x'), string(true), string(1u), string(0.5)]", body).unwrap(),
            r#"["x","true","1","0.5"]"#
        );
    }

    #[test]
    fn it_counts_as_the_number_that_it_is() {
        let body = r#"{"a":1.10,"b":1.1,"c":2e0,"list":[1.5,0.50],"big":1e300}"#;
        for (source, result) in [
            ("[body.a == body.b, body.b == body.a, body.a == 1.1, 1.1 == body.a]", "[true,true,true,true]"),
            ("[body.c == 2, 2 == body.c, body.a < body.c, 2.5 > body.c, body.a <= 1]", "[true,true,true,true,false]"),
            ("[body.a + body.b, body.a - 0.10, 2.0 * body.c, body.c / 4.0, -body.a]", "[2.2,1.0,4.0,0.5,-1.1]"),
            ("[body.a in [1.1], 1.1 in [body.a], body.list[int(body.c) - 1]]", "[true,true,0.50]"),
            ("body.list.sort()", "[0.50,1.5]"),
            ("[type(body.a) == double, double(body.a) == 1.1, int(body.c)]", "[true,true,2]"),
        ] {
            assert_eq!(evaluate(source, body).unwrap(), result, "{source}");
        }
        assert_eq!(evaluate("body.big", body).unwrap(), "1e300");
        assert!(evaluate("body.big * 2.0", body).unwrap_err().contains("too large to be exact"));
    }
}
