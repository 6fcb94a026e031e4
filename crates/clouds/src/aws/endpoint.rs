//! Hosts of AWS: partitions, the endpoints of services, and what the name of a host says. Source: botocore's `endpoints` and
//! `partitions`; the test compares all regions with a table that botocore made.

use reqwest::Url;

/// Which of a service's endpoints are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Endpoints that FIPS 140 validated modules serve.
    pub fips: bool,
    /// Endpoints that have IPv6 addresses too.
    pub dual_stack: bool,
}

/// The suffixes of a partition's hosts, by the beginning of its regions' names. The first that fits counts. The second suffix is that of
/// dual-stack endpoints.
const PARTITIONS: [(&str, &str, &str); 8] = [
    ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
    ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
    ("us-gov-", "amazonaws.com", "api.aws"),
    ("", "amazonaws.com", "api.aws"),
];

/// Whether `name` has the form of a region's name, such as `eu-central-1`.
pub(crate) fn is_region(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let Some((number, words)) = parts.split_last() else { return false };
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    words.len() >= 2
        && words.iter().all(is_word)
        && (1..=2).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The host of STS in `region`.
pub(crate) fn sts(region: &str, variant: Variant) -> String {
    host("sts", region, variant)
}

/// The host of ECR's API in `region`.
pub(crate) fn ecr(region: &str, variant: Variant) -> String {
    match variant {
        Variant { dual_stack: true, .. } => host("ecr", region, variant),
        _ => host("api.ecr", region, variant),
    }
}

fn host(service: &str, region: &str, variant: Variant) -> String {
    let (plain, dual_stack) = suffixes(region);
    let suffix = if variant.dual_stack { dual_stack } else { plain };
    // In GovCloud, the usual endpoints of STS are of the kind.
    let is_fips = variant.fips && !(service == "sts" && !variant.dual_stack && region.starts_with("us-gov-"));
    format!("{service}{}.{region}.{suffix}", if is_fips { "-fips" } else { "" })
}

fn suffixes(region: &str) -> (&'static str, &'static str) {
    let found = PARTITIONS.iter().find(|(prefix, ..)| region.starts_with(prefix));
    found.map_or(("amazonaws.com", "api.aws"), |(_, plain, dual_stack)| (*plain, *dual_stack))
}

/// A registry at AWS, by the name of its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EcrHost {
    /// A private registry, in the region of this name.
    Private(String, Variant),
    /// `public.ecr.aws`.
    Public,
}

impl EcrHost {
    /// Reads a host's name: `<account>.dkr.ecr.<region>.amazonaws.com` and its kin, or `public.ecr.aws`.
    pub(crate) fn read(host: &str) -> Option<Self> {
        if host == "public.ecr.aws" {
            return Some(Self::Public);
        }
        let (account, rest) = host.split_once('.')?;
        if account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (kind, dual_stack) = match rest.strip_prefix("dkr.") {
            Some(rest) => (rest, false),
            None => (rest.strip_prefix("dkr-")?, true),
        };
        let (kind, rest) = kind.split_once('.')?;
        let fips = match kind {
            "ecr" => false,
            "ecr-fips" => true,
            _ => return None,
        };
        let (region, suffix) = rest.split_once('.')?;
        let expected = if dual_stack { dual_registries(region) } else { suffixes(region).0 };
        (is_region(region) && suffix == expected)
            .then(|| Self::Private(region.to_owned(), Variant { fips, dual_stack }))
    }
}

/// The suffix of dual-stack registries. Source: amazon-ecr-credential-helper.
fn dual_registries(region: &str) -> &'static str {
    match region {
        _ if region.starts_with("cn-") => "on.amazonwebservices.com.cn",
        _ if region.starts_with("eusc-") => "on.amazonwebservices.eu",
        _ => "on.aws",
    }
}

/// The service and the region in the host of `url`, as signatures name them: `eks.eu-central-1.amazonaws.com`.
pub(crate) fn of_url(url: &Url) -> (Option<String>, Option<String>) {
    let host = url.host_str().unwrap_or_default();
    let all = PARTITIONS.iter().flat_map(|(_, plain, dual_stack)| [*plain, *dual_stack]);
    // The longest, since `amazonaws.com` ends no host of `amazonaws.com.cn`, but `api.aws` could end another.
    let Some(rest) =
        all.filter_map(|suffix| host.strip_suffix(suffix)?.strip_suffix('.')).min_by_key(|rest| rest.len())
    else {
        return (None, None);
    };
    // GovCloud's endpoint of IAM and the like: `iam.us-gov.amazonaws.com`.
    if let Some(rest) = rest.strip_suffix(".us-gov") {
        return (rest.rsplit('.').next().map(str::to_owned), Some("us-gov-west-1".to_owned()));
    }
    let labels: Vec<&str> = rest.split('.').collect();
    let region = labels.iter().rposition(|label| is_region(label));
    let of_service = &labels[..region.unwrap_or(labels.len())];
    // OpenSearch has the service after the region; an endpoint of a VPC has it before, as usual.
    let after = region.and_then(|at| labels.get(at + 1)).filter(|label| **label != "vpce");
    let before = || of_service.iter().rev().find(|label| **label != "dualstack" && **label != "fips");
    let service = after.or_else(before);
    let service = service.map(|label| label.trim_end_matches("-fips").to_owned());
    let region = region.map(|at| labels[at].to_owned());
    // IAM and the like have one endpoint for all of a partition, and sign for its first region. In other partitions, the identity's counts.
    let is_first = host.ends_with(".amazonaws.com") && service.is_some();
    let region = region.or_else(|| is_first.then(|| "us-east-1".to_owned()));
    (service, region)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Service, region, FIPS, dual stack, host; made by `tests/clouds/facts`.
    const TABLE: &str = include_str!("../../facts/endpoints.tsv");

    #[test]
    fn endpoints_are_those_of_botocore() {
        let mut count = 0;
        for line in TABLE.lines() {
            let [service, region, fips, dual_stack, host] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
            let variant = Variant { fips: fips == "true", dual_stack: dual_stack == "true" };
            let own = if service == "sts" { sts(region, variant) } else { ecr(region, variant) };
            assert_eq!(own, host, "{line}");
            assert!(is_region(region), "{region}");
            count += 1;
        }
        assert!(count > 100, "{count}");
    }

    #[test]
    fn hosts_of_registries() {
        let private =
            |region: &str, fips, dual_stack| Some(EcrHost::Private(region.to_owned(), Variant { fips, dual_stack }));
        for (host, found) in [
            ("123456789012.dkr.ecr.eu-central-1.amazonaws.com", private("eu-central-1", false, false)),
            ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", private("us-gov-west-1", true, false)),
            ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", private("cn-north-1", false, false)),
            ("123456789012.dkr-ecr.us-west-2.on.aws", private("us-west-2", false, true)),
            ("123456789012.dkr-ecr-fips.us-west-2.on.aws", private("us-west-2", true, true)),
            ("public.ecr.aws", Some(EcrHost::Public)),
            ("123456789012.dkr.ecr.eu-central-1.amazonaws.com.evil.example", None),
            ("123456789012.dkr.ecr.eu-central-1.evil.example", None),
            ("123456789012.dkr.ecr.cn-north-1.amazonaws.com", None),
            ("12345678901.dkr.ecr.eu-central-1.amazonaws.com", None),
            ("123456789012.dkr.ecr.amazonaws.com", None),
            ("evil.example", None),
        ] {
            assert_eq!(EcrHost::read(host), found, "{host}");
        }
    }

    #[test]
    fn services_and_regions_of_hosts() {
        for (host, service, region) in [
            ("eks.eu-central-1.amazonaws.com", "eks", "eu-central-1"),
            ("eks-fips.us-gov-west-1.amazonaws.com", "eks", "us-gov-west-1"),
            ("fips.eks.us-east-1.amazonaws.com", "eks", "us-east-1"),
            ("eks.eu-west-1.api.aws", "eks", "eu-west-1"),
            ("abc123.execute-api.eu-west-1.amazonaws.com", "execute-api", "eu-west-1"),
            ("bucket.s3.dualstack.eu-west-1.amazonaws.com", "s3", "eu-west-1"),
            ("ec2.cn-north-1.amazonaws.com.cn", "ec2", "cn-north-1"),
            ("iam.amazonaws.com", "iam", "us-east-1"),
            ("search-apps-abc123.eu-west-1.es.amazonaws.com", "es", "eu-west-1"),
            ("abc123.us-east-1.aoss.amazonaws.com", "aoss", "us-east-1"),
            ("vpce-0a1b-2c3d.eks.eu-west-1.vpce.amazonaws.com", "eks", "eu-west-1"),
            ("vpce-0a1b-2c3d.api.ecr.eu-west-1.vpce.amazonaws.com", "ecr", "eu-west-1"),
        ] {
            let url = Url::parse(&format!("https://{host}/clusters")).unwrap();
            assert_eq!(of_url(&url), (Some(service.to_owned()), Some(region.to_owned())), "{host}");
        }
        assert_eq!(of_url(&Url::parse("https://eks.eu-west-1.example.com/").unwrap()), (None, None));
    }
}
