//! Reads a platform that somebody wants. What no image can be for is refused: it would be missing for ever.

use std::str::FromStr;

use super::{Normal, Platform, arm64};
use domain::spelling::near;

/// The operating systems: those of Go, and the names that images of `wasm` have.
const SYSTEMS: [&str; 19] = [
    "aix",
    "android",
    "darwin",
    "dragonfly",
    "freebsd",
    "hurd",
    "illumos",
    "ios",
    "js",
    "linux",
    "nacl",
    "netbsd",
    "openbsd",
    "plan9",
    "solaris",
    "wasi",
    "wasip1",
    "windows",
    "zos",
];
/// The architectures: those of Go.
const ARCHITECTURES: [&str; 23] = [
    "386",
    "amd64",
    "amd64p32",
    "arm",
    "arm64",
    "arm64be",
    "armbe",
    "loong64",
    "mips",
    "mips64",
    "mips64le",
    "mips64p32",
    "mips64p32le",
    "mipsle",
    "ppc",
    "ppc64",
    "ppc64le",
    "riscv",
    "riscv64",
    "s390",
    "s390x",
    "sparc64",
    "wasm",
];
impl FromStr for Platform {
    type Err = String;

    /// Reads a platform that somebody wants. What no image can be for is refused: it would never be there.
    fn from_str(text: &str) -> Result<Self, String> {
        let shown = || text.chars().take(80).collect::<String>().escape_debug().to_string();
        let wrong = |why: String| format!("`{}` is not a platform: {why}", shown());
        let parts: Vec<&str> = text.split('/').collect();
        let (system, architecture, variant) = match parts[..] {
            [system, architecture] => (system, architecture, None),
            [system, architecture, variant] => (system, architecture, Some(variant)),
            _ => return Err(wrong("it is written such as `linux/amd64` or `linux/arm/v7`".to_owned())),
        };
        let is_word = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        };
        let (os, os_version) = match system.strip_suffix(')').and_then(|system| system.split_once('(')) {
            Some((os, version)) => (os, Some(version)),
            None => (system, None),
        };
        if ![Some(os), os_version, Some(architecture), variant].into_iter().flatten().all(is_word) {
            return Err(wrong("it is written such as `linux/amd64` or `linux/arm/v7`".to_owned()));
        }
        let [os, architecture] = [os, architecture].map(str::to_owned);
        let [variant, os_version] = [variant, os_version].map(|part| part.map(str::to_owned));
        let platform = Self { os, architecture, variant, os_version };
        let Normal { os, architecture, variant } = platform.normal();
        let unknown = |what: &str, name: &str, known: &[&str]| {
            let advice = match near(name, known) {
                Some(meant) => format!("; did you mean `{meant}`?"),
                None => format!("; known are {}", known.join(", ")),
            };
            Err(wrong(format!("there is no {what} `{name}`{advice}")))
        };
        if ARCHITECTURES.contains(&&*os) && SYSTEMS.contains(&&*architecture) {
            return Err(wrong(format!("the operating system comes first: did you mean `{architecture}/{os}`?")));
        }
        if !SYSTEMS.contains(&&*os) {
            return unknown("operating system", &os, &SYSTEMS);
        }
        if !ARCHITECTURES.contains(&&*architecture) {
            return unknown("architecture", &architecture, &ARCHITECTURES);
        }
        if platform.os_version.is_some() && os != "windows" {
            return Err(wrong("only images for Windows have a version of the operating system".to_owned()));
        }
        if !is_variant(&architecture, &variant) {
            return Err(wrong(format!(
                "there is no variant `{variant}` of {architecture}; variants are `v1` to `v4` of amd64, `v5` to `v8` of arm, and \
                 `v8`, `v8.1` … `v9.5` of arm64"
            )));
        }
        Ok(platform)
    }
}

/// Whether there can be an image for the variant.
fn is_variant(architecture: &str, variant: &str) -> bool {
    let number = variant.strip_prefix('v').and_then(|number| number.parse::<u32>().ok());
    match architecture {
        _ if variant.is_empty() => true,
        "386" => false,
        "amd64" => number.is_some_and(|number| (1..=9).contains(&number)),
        "arm" => number.is_some_and(|number| (5..=8).contains(&number)),
        "arm64" => arm64(variant).is_some_and(|(major, _)| matches!(major, 8 | 9)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_image_can_be_for_is_refused() {
        for (bad, says) in [
            ("", "such as `linux/amd64`"),
            ("linux", "such as `linux/amd64`"),
            ("linux/", "such as `linux/amd64`"),
            ("/amd64", "such as `linux/amd64`"),
            ("a/b/c/d", "such as `linux/amd64`"),
            ("linux/amd 64", "such as `linux/amd64`"),
            ("linux/{{ params.arch }}", "such as `linux/amd64`"),
            ("linux()/amd64", "such as `linux/amd64`"),
            ("linus/amd64", "did you mean `linux`?"),
            ("linux/amd46", "did you mean `amd64`?"),
            ("linux/arm65", "did you mean `arm64`?"),
            ("linux/itanium", "known are 386, amd64"),
            ("amd64/linux", "did you mean `linux/amd64`?"),
            ("unknown/unknown", "no operating system `unknown`"),
            ("linux/arm64/v7", "no variant `v7` of arm64"),
            ("linux/arm/v4", "no variant `v4` of arm"),
            ("linux/amd64/new", "no variant `new` of amd64"),
            ("linux(5.4)/amd64", "only images for Windows"),
        ] {
            let error = bad.parse::<Platform>().unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
        }
        for good in
            ["wasi/wasm", "linux/riscv64", "linux/s390x", "windows(10.0.20348.587)/amd64", "linux/mips64le/softfloat"]
        {
            assert!(good.parse::<Platform>().is_ok(), "{good}");
        }
    }
}
