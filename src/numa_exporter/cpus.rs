//! The NUMA zone of each CPU, from sysfs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};

/// Upper bound of CPU numbers.
const CPUS_MAX: i64 = 1 << 16;

/// The NUMA zone of each CPU, by their numbers.
pub type Cpus = BTreeMap<i64, i64>;

/// Reads `devices/system/node/node*/cpulist` below sysfs.
///
/// # Errors
/// When a list cannot be read, or none contains a CPU.
pub fn read(sysfs: &Path) -> anyhow::Result<Cpus> {
    let folder = sysfs.join("devices/system/node");
    let about = || folder.display().to_string();
    let mut cpus = Cpus::new();
    for entry in std::fs::read_dir(&folder).with_context(about)? {
        let entry = entry.with_context(about)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        let Some(zone) = number.and_then(|number| number.parse().ok()) else {
            continue;
        };
        let path = entry.path().join("cpulist");
        let about = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(about)?;
        for (first, last) in ranges(&text).with_context(about)? {
            cpus.extend((first..=last).map(|cpu| (cpu, zone)));
        }
    }
    ensure!(!cpus.is_empty(), "{}: no zone has a CPU", folder.display());
    Ok(cpus)
}

/// The ranges of a list such as `0-3,8,10-11`.
fn ranges(text: &str) -> anyhow::Result<Vec<(i64, i64)>> {
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (i64, i64) = (first.parse()?, last.parse()?);
        if !(0..=last).contains(&first) || last >= CPUS_MAX {
            bail!("{part:?} is no range of CPUs");
        }
        Ok((first, last))
    };
    parts.map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Target;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(ranges("0-3,8,10-11\n").unwrap(), [(0, 3), (8, 8), (10, 11)]);
        assert_eq!(ranges("\n").unwrap(), [], "a zone with memory alone");
        for wrong in ["a", "3-1", "-1", "0-99999999999", "1-", "0-65536"] {
            ranges(wrong).unwrap_err();
        }
    }

    #[test]
    fn zones_are_folders_and_one_of_them_has_a_cpu() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("devices/system/node");
        read(root.path()).unwrap_err();
        let zone = |name: &str, list: &str| {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("cpulist"), list).unwrap();
        };
        zone("node1", "\n");
        std::fs::create_dir_all(folder.join("power")).unwrap();
        std::fs::write(folder.join("online"), "0-1\n").unwrap();
        let error = read(root.path()).unwrap_err().to_string();
        assert!(error.ends_with("no zone has a CPU"), "{error}");
        zone("node0", "0,2\n");
        zone("node10", "1\n");
        assert_eq!(read(root.path()).unwrap(), Cpus::from([(0, 0), (1, 10), (2, 0)]));
    }

    #[test]
    fn fuzz_lists_of_cpus() {
        let target = Target {
            name: "cpu-list",
            rounds: 500,
            words: &["0", "1", "65535", "65536", "-", ",", "\n"],
        };
        target.texts(|text| match ranges(text) {
            Ok(ranges) => {
                assert!(
                    ranges
                        .iter()
                        .all(|(first, last)| 0 <= *first && first <= last && *last < CPUS_MAX)
                );
                true
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false
            }
        });
    }
}
