//! The names that CEL has: types, functions and macros.

/// Names that stand for types.
pub(super) const TYPES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
/// Functions without a target.
pub(super) const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "date",
    "double",
    "duration",
    "dyn",
    "int",
    "matches",
    "size",
    "string",
    "timestamp",
    "type",
    "uint",
];
/// Functions with a target, as in `text.startsWith('a')`.
pub(super) const METHODS: &[&str] = &[
    "charAt",
    "contains",
    "distinct",
    "endsWith",
    "flatten",
    "format",
    "hasValue",
    "indexOf",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "name",
    "or",
    "orValue",
    "replace",
    "reverse",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "substring",
    "trim",
    "upperAscii",
    "value",
];
/// Functions with a target that the parser replaces by other expressions.
pub(super) const MACROS: &[&str] = &["all", "exists", "exists_one", "filter", "map", "optFlatMap", "optMap", "sortBy"];
/// Functions whose names have two parts.
pub(super) const QUALIFIED: &[&str] = &[
    "base64.decode",
    "base64.encode",
    "lists.range",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "strings.quote",
];
