//! Platforms, and which image a host can run. The names of one platform count as equal, and compatible variants are ordered, as
//! containerd's `platforms` does it (`Normalize`, and `Only` within one architecture). A comparison as text would take an image
//! for missing that is there.

mod parse;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rank of an image with another variant, for a platform that names no variant.
const OPEN: u32 = 1000;
/// The first build of Windows whose hosts run images of earlier builds: Windows Server 2022.
const WINDOWS_2022: u32 = 20348;

/// A platform, written `linux/amd64`, `linux/arm/v7` or `windows(10.0.20348.587)/amd64`. It keeps the spelling of its author.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`
    #[serde(default)]
    pub os: String,
    /// `amd64`
    #[serde(default)]
    pub architecture: String,
    /// `v7`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The version of Windows.
    #[serde(rename = "os.version", skip_serializing_if = "Option::is_none")]
    pub(crate) os_version: Option<String>,
}

/// The parts of a platform under their usual names.
#[derive(Debug, PartialEq, Eq)]
struct Normal {
    os: String,
    architecture: String,
    variant: String,
}

impl Platform {
    /// Whether somebody has named it. Builders write `unknown/unknown` for documents that are not images.
    pub(super) fn is_named(&self) -> bool {
        ![&self.os, &self.architecture].into_iter().any(|name| name.trim().is_empty())
    }

    /// Whether it is `unknown`, as the platform of an attestation.
    pub(super) fn is_unknown(&self) -> bool {
        self.os.trim().eq_ignore_ascii_case("unknown")
    }

    /// How well an image for `self` runs on a host that is `wanted`: 0 is best. `None` if it does not run there. If `wanted` has no
    /// variant, baseline variants rank first, then any other.
    #[must_use]
    pub fn rank(&self, wanted: &Self) -> Option<u32> {
        let (own, host) = (self.normal(), wanted.normal());
        if own.os != host.os || own.architecture != host.architecture {
            return None;
        }
        if own.os == "windows" && !runs_on_windows(self.os_version.as_deref(), wanted.os_version.as_deref()) {
            return None;
        }
        let steps =
            if own.variant == host.variant { Some(0) } else { steps(&own.architecture, &own.variant, &host.variant) };
        let is_open = wanted.variant.as_deref().is_none_or(|variant| variant.trim().is_empty());
        steps.or(is_open.then_some(OPEN))
    }

    /// Whether an image for `self` runs on `wanted`.
    #[must_use]
    pub fn suits(&self, wanted: &Self) -> bool {
        self.rank(wanted).is_some()
    }

    fn normal(&self) -> Normal {
        let lower = |text: &str| text.trim().to_ascii_lowercase();
        let os = match lower(&self.os) {
            os if os == "macos" => "darwin".to_owned(),
            os => os,
        };
        let (architecture, variant) =
            normal_architecture(&lower(&self.architecture), lower(self.variant.as_deref().unwrap_or_default()));
        Normal { os, architecture, variant }
    }
}

/// The usual name of an architecture, and its variant. The variant that every host has is left out, except for `arm`, as at containerd.
fn normal_architecture(architecture: &str, variant: String) -> (String, String) {
    let (architecture, variant) = match architecture {
        "i386" | "i486" | "i586" | "i686" | "x86" => ("386", String::new()),
        "x86_64" | "x86-64" | "x64" => ("amd64", variant),
        "aarch64" => ("arm64", variant),
        "armhf" => ("arm", "v7".to_owned()),
        "armel" => ("arm", "v6".to_owned()),
        "arm" if variant.is_empty() => ("arm", "v7".to_owned()),
        other => (other, variant),
    };
    let is_number = variant.starts_with(|c: char| c.is_ascii_digit());
    let variant = match (architecture, variant) {
        ("amd64" | "arm" | "arm64", variant) if is_number => format!("v{variant}"),
        (_, variant) => variant,
    };
    let variant = match (architecture, &*variant) {
        ("amd64", "v1") | ("arm64", "v8" | "v8.0") => String::new(),
        ("arm64", "v9.0") => "v9".to_owned(),
        _ => variant,
    };
    (architecture.to_owned(), variant)
}

/// How many steps the variant `own` is below that of the host. `None` if the host does not run it, or they cannot be compared.
fn steps(architecture: &str, own: &str, host: &str) -> Option<u32> {
    let number = |variant: &str| variant.strip_prefix('v')?.parse::<u32>().ok();
    match architecture {
        "amd64" => {
            let level = |variant: &str| if variant.is_empty() { Some(1) } else { number(variant) };
            level(host)?.checked_sub(level(own)?)
        }
        "arm" => number(own).filter(|own| *own >= 5).and_then(|own| number(host)?.checked_sub(own)),
        "arm64" => {
            let ((major, minor), (own_major, own_minor)) = (arm64(host)?, arm64(own)?);
            match (major, own_major) {
                _ if major == own_major => minor.checked_sub(own_minor),
                // Arm's version 9.n has all of 8.(n + 5).
                (9, 8) => (minor + 5).checked_sub(own_minor).map(|steps| minor + 1 + steps),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The version of a variant of `arm64`: 8.0 unless it is named.
fn arm64(variant: &str) -> Option<(u32, u32)> {
    if variant.is_empty() {
        return Some((8, 0));
    }
    let version = variant.strip_prefix('v')?;
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    Some((major.parse().ok()?, minor.parse().ok().filter(|minor| *minor < 100)?))
}

/// Whether a host of the version `host` runs an image of the version `own`: the same build, or from Windows Server 2022 on an earlier one.
/// A version that is not named or cannot be read says nothing.
fn runs_on_windows(own: Option<&str>, host: Option<&str>) -> bool {
    let build = |version: &str| {
        let mut parts = version.trim().split('.').map(|part| part.parse::<u32>().ok());
        Some(((parts.next()??, parts.next()??), parts.next()??))
    };
    let (Some((own, own_build)), Some((host, host_build))) = (own.and_then(build), host.and_then(build)) else {
        return true;
    };
    own == host && (own_build == host_build || (WINDOWS_2022..host_build).contains(&own_build))
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().filter(|variant| !variant.is_empty()).try_for_each(|variant| write!(f, "/{variant}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Platform {
        let (os, after_os) = text.split_once('/').unwrap_or((text, ""));
        let (architecture, variant) = match after_os.split_once('/') {
            Some((architecture, variant)) => (architecture, Some(variant.to_owned())),
            None => (after_os, None),
        };
        let (os, os_version) = match os.split_once('(') {
            Some((os, version)) => (os, Some(version.trim_end_matches(')').to_owned())),
            None => (os, None),
        };
        Platform { os: os.to_owned(), architecture: architecture.to_owned(), variant, os_version }
    }

    #[test]
    fn one_platform_has_several_names() {
        for names in [
            &["linux/amd64", "Linux/x86_64", "linux/x86-64", "linux/AMD64/v1", "linux/amd64/1", "linux/amd64/"][..],
            &["linux/arm64", "linux/aarch64", "linux/arm64/v8", "linux/arm64/8", "linux/ARM64/V8", "linux/arm64/v8.0"],
            &["linux/arm", "linux/arm/v7", "linux/arm/7", "linux/armhf"],
            &["linux/arm/v6", "linux/arm/6", "linux/armel"],
            &["linux/386", "linux/i386", "linux/i486", "linux/i686"],
            &["darwin/arm64", "macOS/aarch64"],
            &["linux/arm64/v9", "linux/arm64/v9.0", "linux/aarch64/9"],
            &["linux/ppc64le", "LINUX/PPC64LE"],
            &["windows(10.0.17763.1)/amd64", "windows(10.0.17763.99)/amd64", "windows/amd64"],
        ] {
            for one in names {
                for other in names {
                    assert_eq!(of(one).rank(&of(other)), Some(0), "{one} for {other}");
                }
                assert!(one.ends_with('/') || one.parse::<Platform>().is_ok(), "{one}");
            }
        }
    }

    #[test]
    fn the_exact_variant_comes_before_compatible_ones() {
        for (wanted, in_order) in [
            ("linux/arm/v7", &["linux/arm", "linux/arm/v6", "linux/arm/v5"][..]),
            ("linux/arm/v8", &["linux/arm/v8", "linux/armhf", "linux/arm/v6", "linux/arm/v5"]),
            ("linux/amd64/v3", &["linux/amd64/v3", "linux/amd64/v2", "linux/amd64"]),
            ("linux/arm64/v8.2", &["linux/arm64/v8.2", "linux/arm64/v8.1", "linux/arm64"]),
            (
                "linux/arm64/v9.1",
                &["linux/arm64/v9.1", "linux/arm64/v9", "linux/arm64/v8.6", "linux/arm64/v8.5", "linux/arm64/v8"],
            ),
            // An open variant takes what every host runs, then any.
            ("linux/amd64", &["linux/amd64/v1", "linux/amd64/v2"]),
            ("linux/arm", &["linux/arm/v7", "linux/arm/v5", "linux/arm/v8"]),
            ("linux/arm64", &["linux/arm64/v8", "linux/arm64/v9"]),
            ("linux/mips64le", &["linux/mips64le", "linux/mips64le/softfloat"]),
        ] {
            let ranks: Vec<Option<u32>> = in_order.iter().map(|own| of(own).rank(&of(wanted))).collect();
            assert_eq!(ranks[0], Some(0), "{wanted}");
            assert!(ranks.iter().all(Option::is_some) && ranks.is_sorted_by(|a, b| a < b), "{wanted}: {ranks:?}");
        }
        for (own, wanted) in [
            ("linux/arm/v7", "linux/arm/v6"),
            ("linux/arm", "linux/arm/v6"),
            ("linux/amd64/v3", "linux/amd64/v2"),
            ("linux/amd64/v2", "linux/amd64/v1"),
            ("linux/arm64/v9", "linux/arm64/v8"),
            ("linux/arm64/v8.9", "linux/arm64/v9.1"),
            ("linux/386", "linux/amd64"),
            ("linux/arm/v7", "linux/arm64"),
            ("linux/amd64", "windows/amd64"),
            ("linux/mips64le/softfloat", "linux/mips64le/hardfloat"),
        ] {
            assert!(!of(own).suits(&of(wanted)), "{own} for {wanted}");
        }
    }

    #[test]
    fn windows_runs_images_of_its_build() {
        for (own, wanted, runs) in [
            ("10.0.17763.5", "10.0.17763.9", true),
            ("10.0.17763.5", "10.0.19042.1", false),
            ("10.0.20348.5", "10.0.26100.1", true),
            ("10.0.26100.1", "10.0.20348.5", false),
            ("10.0.17763.5", "10.0.20348.5", false),
            ("6.3.9600", "10.0.9600", false),
            ("newest", "10.0.20348.5", true),
        ] {
            let [own, wanted] = [own, wanted].map(|version| of(&format!("windows({version})/amd64")));
            assert_eq!(own.suits(&wanted), runs, "{own:?} for {wanted:?}");
        }
    }
}
