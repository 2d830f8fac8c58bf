/// Declares an enum with a word for each value: `Tcp = "TCP"`. It gets `ALL`, in order, and `word`.
#[macro_export]
macro_rules! worded {
    ($(#[$meta:meta])* $visible:vis enum $name:ident { $($(#[$of:meta])* $value:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        $visible enum $name {
            $($(#[$of])* $value),+
        }

        #[allow(dead_code)]
        impl $name {
            /// All values, in order.
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$value),+];

            /// The word in tables and messages.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$value => $word),+
                }
            }
        }
    };
}
