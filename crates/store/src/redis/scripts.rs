//! The scripts.

use redis::Script;

/// A script and its name for messages.
pub(super) struct NamedScript {
    pub name: &'static str,
    pub script: Script,
}

macro_rules! scripts {
    ($($name:ident)*) => {
        /// One script for each call, which is run after `common.lua`.
        pub(super) struct Scripts {
            $(pub $name: NamedScript,)*
        }

        impl Default for Scripts {
            fn default() -> Self {
                Self {
                    $($name: NamedScript {
                        name: stringify!($name),
                        script: Script::new(concat!(
                            include_str!("common.lua"),
                            "\n",
                            include_str!(concat!(stringify!($name), ".lua"))
                        )),
                    },)*
                }
            }
        }

        impl Scripts {
            /// All of them.
            pub(super) fn all(&self) -> impl Iterator<Item = &NamedScript> {
                [$(&self.$name,)*].into_iter()
            }
        }
    };
}

scripts!(sync begin renew commit chunks invalidate register offer note notes claim name_key page replace);
